"""Reports 12 to 15, 17 to 19 and 24: pages that do not match, blocks that do not, and what conversion keeps."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from fuzz.planners.process import Planner
from oracles.case import AttentionSpec, Case, FullSpec, SlidingWindowMlaSpec, Spec, kind_of
from oracles.geometry import page_bytes
from oracles.plan import Plan
from tests.corpus.asking import (
    ask,
    block_bytes,
    broken,
    concurrency,
    groups,
    padding_layers,
    placement_faults,
    plan,
    refusal,
    report,
    request_blocks,
    shapes,
    widths,
)


def group_specs(answer: Plan) -> dict[str, Spec]:
    """Layer name → the spec its group gave it."""
    found: dict[str, Spec] = {}
    for group in groups(answer):
        members = group.members or (group.spec,) * len(group.layers)
        for name, at in zip(group.member_layers or group.layers, members, strict=True):
            assert at is not None
            found[name] = answer.specs[at]
    return found


# Report 12: per-token-head scales make pages of 133,120 and 264,192 bytes.


def test_r12_windows_are_padded_to_the_larger_page(either: Planner) -> None:
    case = report("r12-per-token-head-scales.layer-outer")
    assert [page_bytes(spec) for spec in case.specs] == [133_120, 264_192]
    answer = plan(either, case)
    assert shapes(answer) == (*5 * (("sliding_window", 10, 16, 16, 264_192),), ("full", 10, 16, 16, 264_192))
    assert placement_faults(case, answer) == []


def test_r12_packing_keeps_both_pages(either: Planner) -> None:
    case = report("r12-per-token-head-scales.block-outer")
    answer = plan(either, case)
    assert shapes(answer) == (
        *2 * (("sliding_window", 17, 16, 16, 2_263_040),),
        ("sliding_window", 16, 16, 16, 2_129_920),
        ("full", 10, 16, 16, 2_641_920),
    )
    assert placement_faults(case, answer) == []


@pytest.mark.parametrize("layout", ["layer-outer", "block-outer"])
def test_r12_the_quantisation_mode_is_kept(layout: str, either: Planner) -> None:
    specs = group_specs(plan(either, report(f"r12-per-token-head-scales.{layout}")))
    assert {s.kv_quant_mode for s in specs.values() if isinstance(s, AttentionSpec)} == {"INT8_PER_TOKEN_HEAD"}


# Report 13: a draft whose page is larger than the Mamba page.


@pytest.mark.parametrize(
    ("name", "page", "full_block"),
    [("r13-draft-page-above-mamba", 2_097_152, 1024), ("r13-draft-page-not-a-multiple", 1_572_864, 512)],
)
def test_r13_mamba_keeps_its_block_and_its_page_is_padded(
    name: str, page: int, full_block: int, either: Planner
) -> None:
    answer = plan(either, report(name))
    assert shapes(answer) == (
        *12 * (("mamba", 1, 512, 512, page),),
        *4 * (("full", 1, full_block, full_block, page),),
        ("full", 1, 512, 512, page),
    )
    assert padding_layers(answer) == 0


# Report 14: a page of 12,416 bytes beside one of 12,648,448.


def test_r14_the_small_page_is_padded_a_thousandfold(either: Planner) -> None:
    case = report("r14-turboquant-page-and-mamba")
    answer = plan(either, case)
    assert shapes(answer) == (*3 * (("mamba", 3, 16, 16, 12_648_448),), ("full", 3, 16, 16, 12_648_448))
    assert block_bytes(answer) == 37_945_344
    assert concurrency(answer) == 1_131 / 518
    assert placement_faults(case, answer) == []


def test_r14_packing_keeps_the_small_page(either: Planner) -> None:
    case = report("r14-turboquant-page-and-mamba.block-outer")
    answer = plan(either, case)
    assert shapes(answer) == (*9 * (("mamba", 1, 16, 16, 12_648_448),), ("full", 3, 16, 16, 37_248))
    assert block_bytes(answer) == 12_648_448
    assert concurrency(answer) == 3_395 / 530
    assert placement_faults(case, answer) == []


# Report 15: DeepSeek-V4.


def test_r15_deepseek_v4_has_the_reported_groups(either: Planner) -> None:
    case = report("r15-deepseek-v4")
    answer = plan(either, case)
    assert shapes(answer) == (
        ("sliding_window_mla", 22, 64, 64, 823_680),
        ("sliding_window_mla", 21, 64, 64, 786_240),
        ("mla", 62, 256, 256, 1_002_240),
        ("sliding_window_mla", 42, 4, 4, 870_912),
        ("sliding_window_mla", 20, 8, 8, 656_640),
    )
    assert placement_faults(case, answer) == []


def test_r15_request_bytes_follow_the_formula(either: Planner) -> None:
    answer = plan(either, report("r15-deepseek-v4"))
    length, in_flight = 1_048_576, 8_192
    window = math.ceil((127 + in_flight) / 64) + 1
    states_of_4 = math.ceil((7 + in_flight) / 4) + 1
    states_of_128 = math.ceil((127 + in_flight) / 8) + 1
    assert request_blocks(answer) == (window, window, length // 256, states_of_4, states_of_128)
    assert request_blocks(answer) == (131, 131, 4_096, 2_051, 1_041)
    assert sum(request_blocks(answer)) * block_bytes(answer) == 7_450 * 1_002_240


def test_r15_tiny_windows_take_two_fifths_of_a_request_of_a_million_tokens(either: Planner) -> None:
    blocks = request_blocks(plan(either, report("r15-deepseek-v4")))
    assert round((blocks[3] + blocks[4]) / sum(blocks), 3) == 0.415


# Report 17: hidden states have a group of their own.


def hidden_groups(answer: Plan) -> list[list[str]]:
    """Layers of each group that holds a hidden-state layer."""
    return [list(group.layers) for group in groups(answer) if "hidden_state" in group.kind]


def test_r17_hidden_states_are_set_apart_from_windowed_mla(either: Planner) -> None:
    case = report("r17-hidden-state-in-deepseek-v4")
    answer = plan(either, case)
    assert hidden_groups(answer) == [["cache_only_layers.0"]]
    assert placement_faults(case, answer) == []


def test_r17_a_hidden_state_block_of_8_mib_sets_the_price_of_every_block(either: Planner) -> None:
    assert block_bytes(plan(either, report("r17-hidden-state-in-deepseek-v4"))) == 256 * 4 * 4_096 * 2


@broken("the uniform-type wrapper is made before hidden-state layers are set aside")
def test_r17_hidden_states_are_set_apart_from_mla_alone(either: Planner) -> None:
    assert hidden_groups(plan(either, report("r17-hidden-state-beside-mla-only"))) == [["cache_only_layers.0"]]


def test_r17_hidden_states_share_the_group_of_mla_alone_today(either: Planner) -> None:
    answer = plan(either, report("r17-hidden-state-beside-mla-only"))
    assert shapes(answer) == (("hidden_state+mla", 5, 64, 64, 2_392_064),)


# Report 18: one token's hidden states are larger than the common page.


def test_r18_groups_are_scaled_until_a_hidden_state_fits(either: Planner) -> None:
    case = report("r18-hidden-state-above-page")
    answer = plan(either, case)
    assert shapes(answer) == (
        ("full", 4, 112, 112, 57_344),
        ("sliding_window", 4, 112, 112, 57_344),
        ("hidden_state", 1, 1, 1, 57_344),
    )
    assert placement_faults(case, answer) == []


@broken("scaling a group for its hidden states scales the block of Mamba layers")
@pytest.mark.parametrize("state", ["padded", "exact"])
def test_r18_mamba_keeps_its_block(state: str, either: Planner) -> None:
    answer = ask(either, report(f"r18-hidden-state-above-page-{state}-mamba"))
    assert [group.block_size for group in groups(answer) if group.kind == "mamba"] == [64]


def test_r18_padded_mamba_pages_are_scaled_with_their_block_today(either: Planner) -> None:
    assert shapes(plan(either, report("r18-hidden-state-above-page-padded-mamba"))) == (
        ("full", 4, 128, 128, 65_536),
        ("mamba", 4, 128, 128, 65_536),
        ("hidden_state", 1, 1, 1, 65_536),
    )


def test_r18_mamba_pages_without_padding_stay_behind_and_are_refused_today(either: Planner) -> None:
    case = report("r18-hidden-state-above-page-exact-mamba")
    assert shapes(ask(either, case))[1] == ("mamba", 4, 128, 128, 32_768)
    found = refusal(either, case, "place")
    assert (found.type, "mixed page sizes ([32768, 65536])" in found.message) == ("ValueError", True)


# Report 19: block sizes and the unit of hashing.


@pytest.mark.parametrize(
    ("name", "spans", "sizes"),
    [("r19-blocks-128-and-768", {128, 768}, (768, 128)), ("r19-blocks-256-64-8-4", {256, 64, 8, 4}, (256, 4))],
)
def test_r19_the_scheduler_block_is_a_multiple_and_the_hash_unit_a_divisor(
    name: str, spans: set[int], sizes: tuple[int, int], either: Planner
) -> None:
    answer = plan(either, report(name))
    assert {group.span_tokens for group in groups(answer)} == spans
    assert answer.sizes is not None
    assert (answer.sizes.scheduler_block, answer.sizes.hash_block) == sizes


def test_r19_a_hash_unit_above_a_block_is_refused(either: Planner) -> None:
    found = refusal(either, report("r19-blocks-32-and-8-hash-32"), "size")
    assert found.type == "ValueError"
    assert "must be divisible by prefix_match_unit" in found.message


# Report 24: a windowed layer of the same geometry has the same page, and conversion loses nothing.

DTYPES = [
    ("bf16", 65_536),
    ("fp8", 32_768),
    ("int8-per-token-head", 33_792),
    ("fp8-per-token-head", 33_792),
    ("int4-per-token-head", 17_408),
    ("nvfp4", 18_432),
    ("turboquant", 25_088),
    ("padded", 69_632),
    ("aligned-stride", 65_536),
]


def attention_fields(spec: Spec) -> dict[str, object]:
    """What every attention kind has."""
    return {field.name: getattr(spec, field.name) for field in structs.fields(AttentionSpec)}


def with_manager(case: Case) -> Case:
    """The case with the hybrid manager on."""
    return structs.replace(case, settings=structs.replace(case.settings, hybrid_manager=True))


@pytest.mark.parametrize(("dtype", "page"), DTYPES)
def test_r24_a_window_has_the_page_of_a_full_layer(dtype: str, page: int, either: Planner) -> None:
    answer = plan(either, with_manager(report(f"r24-conversion-{dtype}")))
    assert shapes(answer) == (("full", 2, 16, 16, page), ("sliding_window", 2, 16, 16, page))


@pytest.mark.parametrize(("dtype", "page"), DTYPES)
def test_r24_conversion_of_windows_loses_no_field(dtype: str, page: int, either: Planner) -> None:
    case = report(f"r24-conversion-{dtype}")
    answer = plan(either, case)
    assert shapes(answer) == (("full", 4, 16, 16, page),)
    (merged,) = answer.specs
    assert isinstance(merged, FullSpec)
    assert [attention_fields(spec) for spec in case.specs] == 2 * [attention_fields(merged)]
    assert merged.sliding_window == 1_024


@broken("TypeError: the conversion hands bounded_replay to a spec without that field")
def test_r24_windowed_mla_is_converted_to_mla(either: Planner) -> None:
    assert {group.kind for group in groups(ask(either, report("r24-conversion-latent")))} == {"mla"}


def test_r24_conversion_of_windowed_mla_raises_a_type_error_today(either: Planner) -> None:
    found = refusal(either, report("r24-conversion-latent"), "group")
    assert found.type == "TypeError"
    assert "unexpected keyword argument 'bounded_replay'" in found.message


@broken("merging windowed MLA specs drops the quantisation mode and the alignment")
def test_r24_merging_windowed_mla_loses_no_field(either: Planner) -> None:
    case = report("r24-latent-windows-alone")
    (merged,) = plan(either, case).specs
    (asked,) = case.specs
    assert isinstance(asked, SlidingWindowMlaSpec)
    assert merged == structs.replace(asked, page_size_padded=10_944)  # 16 × 656, aligned to 576


def test_r24_merging_windowed_mla_drops_two_fields_today(either: Planner) -> None:
    case = report("r24-latent-windows-alone")
    (asked,) = case.specs
    assert isinstance(asked, SlidingWindowMlaSpec)
    assert (asked.kv_quant_mode, asked.alignment) == ("FP8_PER_TENSOR", 576)
    assert plan(either, case).specs == (
        structs.replace(asked, page_size_padded=10_944, kv_quant_mode="NONE", alignment=None),
    )


@broken("merging windowed MLA specs compares neither block, nor heads, nor dtype")
def test_r24_windowed_mla_of_two_sizes_has_room_for_both(either: Planner) -> None:
    case = report("r24-latent-windows-of-two-sizes")
    assert placement_faults(case, plan(either, case)) == []


def test_r24_windowed_mla_of_two_sizes_gets_the_page_of_the_first_today(either: Planner) -> None:
    case = report("r24-latent-windows-of-two-sizes")
    assert [(kind_of(spec), page_bytes(spec)) for spec in case.specs] == [
        ("sliding_window_mla", 16_384),
        ("sliding_window_mla", 18_432),
    ]
    answer = plan(either, case)
    assert widths(answer) == [4]
    assert placement_faults(case, answer) == [
        f"stage 0: model.layers.wide.{at}: content of 18432 bytes in a page of 16384" for at in range(2)
    ]
