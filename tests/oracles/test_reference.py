"""The reference against values that are written out: rule by rule, on both contracts."""

from __future__ import annotations

import pytest
from msgspec import structs

from oracles.case import (
    Case,
    ChunkedLocalSpec,
    CircularBufferSpec,
    FullSpec,
    HiddenStateSpec,
    MambaSpec,
    MlaSpec,
    RSwaSpec,
    SinkSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Speculative,
    Worker,
    keep_layers,
)
from oracles.law import Contract
from oracles.plan import Plan, Refusal, Refused
from oracles.reference import RULE_SETS, Unruled, expected_plan, rules_for
from tests.oracles.models import EAGLE, FULL, MLA, RULES, WINDOW, model, right_plan, settings, staged

Shape = tuple[str, int, int, int]


def shapes(case: Case, contract: Contract = "native", version: str = "0.33") -> list[Shape]:
    """(kind, layers, block in tokens, page in bytes) of each group."""
    outcome = expected_plan(case, RULE_SETS[version], contract)
    assert not isinstance(outcome, Unruled)
    plan: Plan = outcome.plan  # type: ignore[union-attr]
    assert plan.groups is not None
    return [(g.kind, len(g.layers), g.block_size, g.page_bytes) for g in plan.groups]


def refusal(case: Case, contract: Contract = "native") -> Refusal:
    """What the reference refuses first."""
    outcome = expected_plan(case, RULES, contract)
    assert isinstance(outcome, Refused)
    return outcome.first


def sizes(case: Case, contract: Contract = "native") -> tuple[int, int]:
    """(scheduler block, hash block) in tokens."""
    plan = right_plan(case, contract)
    assert plan.sizes is not None
    return plan.sizes.scheduler_block, plan.sizes.hash_block


REPLICATED_WINDOW = SlidingWindowSpec(
    block_size=64, num_kv_heads=2, head_size=128, sliding_window=2048, replicated=True
)
TARGET_PAGE = 41_984


# Rules 0 to 3


def test_no_layers_make_no_groups() -> None:
    assert shapes(model()) == []


def test_full_layers_of_one_window_merge_into_one_that_records_it() -> None:
    case = model((FULL, 2), (structs.replace(FULL, sliding_window=512), 1))
    plan = right_plan(case)
    assert shapes(case) == [("full", 3, 16, 65_536)]
    assert plan.specs == (structs.replace(FULL, sliding_window=512),)


def test_full_layers_of_two_windows_keep_a_spec_each() -> None:
    case = model((structs.replace(FULL, sliding_window=512), 1), (structs.replace(FULL, sliding_window=256), 1))
    plan = right_plan(case)
    assert plan.groups is not None
    assert plan.groups[0].is_wrapper
    assert shapes(case) == [("full", 2, 16, 131_072)]


def test_kinds_of_the_full_family_share_a_wrapper_and_do_not_merge() -> None:
    sink = SinkSpec(block_size=16, num_kv_heads=8, head_size=128, sink_len=4)
    recent = RSwaSpec(block_size=16, num_kv_heads=8, head_size=128, rswa_window=64)
    assert shapes(model((FULL, 1), (sink, 1), (recent, 1))) == [("full+rswa+sink", 3, 16, 196_608)]


def test_local_layers_become_full_without_the_hybrid_manager() -> None:
    window = structs.replace(WINDOW, block_size=32)
    case = model((FULL, 1), (window, 1), under=settings(hybrid_manager=False))
    assert shapes(case) == [("full", 2, 16, 65_536)]
    assert right_plan(case).specs == (structs.replace(FULL, sliding_window=1024),)


def test_windowed_latent_layers_become_latent_without_the_hybrid_manager() -> None:
    window = SlidingWindowMlaSpec(block_size=64, num_kv_heads=1, head_size=128, sliding_window=128, bounded_replay=True)
    assert shapes(model((MLA, 1), (window, 1), under=settings(hybrid_manager=False))) == [("mla", 2, 64, 16_384)]


def test_state_beside_attention_is_refused_without_the_hybrid_manager() -> None:
    state = MambaSpec(block_size=16, shapes=((64,),), dtypes=("float32",))
    found = refusal(model((FULL, 1), (state, 1), under=settings(hybrid_manager=False)))
    assert (found.stage, found.type) == ("group", "ValueError")


# Rule 5


def test_pages_are_packed_where_blocks_are_outermost() -> None:
    case = model((MLA, 4), (REPLICATED_WINDOW, 5), under=settings(dcp=4, layout="BLHNC"))
    assert shapes(case) == [("mla", 4, 64, 65_536), ("sliding_window", 1, 64, 65_536)] + 4 * [
        ("sliding_window", 1, 64, 65_536)
    ]


def test_a_balanced_pattern_sets_the_repeats_of_the_others() -> None:
    small = structs.replace(FULL, head_size=64)
    case = model((FULL, 2), (small, 2), (WINDOW, 4), under=settings(layout="BLHNC"))
    assert shapes(case) == [
        ("full", 4, 16, 196_608), ("sliding_window", 2, 16, 131_072), ("sliding_window", 2, 16, 131_072),
    ]  # fmt: skip


def test_states_are_dealt_out_until_none_widens_the_block() -> None:
    state = MambaSpec(block_size=16, shapes=((5000,),), dtypes=("float32",))
    case = model((FULL, 1), (state, 7), under=settings(layout="BLHNC"))
    assert [shape[1] for shape in shapes(case)] == [1, 3, 2, 2]


def test_rings_of_two_pages_are_dealt_in_rounds() -> None:
    """A round of 24,576 and 73,728 bytes is wider than the full layer's 65,536: one round a group."""
    small = CircularBufferSpec(block_size=12, num_kv_heads=8, head_size=64)
    large = CircularBufferSpec(block_size=12, num_kv_heads=24, head_size=64)
    case = model((FULL, 1), (small, 3), (large, 3), under=settings(layout="BLHNC"))
    assert shapes(case) == [("full", 1, 16, 65_536)] + 3 * [("circular_buffer", 2, 12, 98_304)]


def test_before_0_30_windows_are_not_dealt_out() -> None:
    narrow = structs.replace(WINDOW, num_kv_heads=4)
    case = model((FULL, 1), (narrow, 4), under=settings(layout="BLHNC"))
    assert [shape[1] for shape in shapes(case, version="0.29")] == [1, 4]
    assert [shape[1] for shape in shapes(case, version="0.30")] == [1, 2, 2]


# Rules 6 and 7


def test_smaller_pages_get_larger_blocks() -> None:
    case = model((FULL, 1), (structs.replace(WINDOW, num_kv_heads=2), 1))
    assert shapes(case) == [("full", 1, 16, 65_536), ("sliding_window", 1, 64, 65_536)]


def test_a_stated_padding_grows_with_its_block() -> None:
    padded = structs.replace(WINDOW, num_kv_heads=1, page_size_padded=16_384)
    assert shapes(model((FULL, 1), (padded, 1))) == [("full", 1, 16, 65_536), ("sliding_window", 1, 64, 65_536)]


def test_pages_that_do_not_divide_are_padded() -> None:
    odd = structs.replace(WINDOW, num_kv_heads=3)
    assert shapes(model((FULL, 1), (odd, 1))) == [("full", 1, 16, 65_536), ("sliding_window", 1, 16, 65_536)]


def test_latent_pages_that_do_not_divide_are_refused() -> None:
    state = MambaSpec(block_size=16, shapes=((65_537,),), dtypes=("uint8",))
    found = refusal(model((MLA, 1), (state, 1)))
    assert (found.stage, found.type) == ("group", "NotImplementedError")


def test_windows_beside_such_latent_layers_are_kept_whole() -> None:
    wide = SlidingWindowSpec(block_size=64, num_kv_heads=3, head_size=128, sliding_window=2048)
    assert shapes(model((structs.replace(MLA, head_size=100), 2), (wide, 1))) == [("full+mla", 3, 64, 123_904)]


@pytest.mark.parametrize(
    ("full", "windows", "widths"), [(12, 18, [12, 9, 9]), (12, 17, [12, 17]), (19, 18, [19, 18]), (1, 3, [1, 1, 1, 1])]
)
def test_the_width_is_the_smallest_count_or_a_largest_below_one_and_a_half(
    full: int, windows: int, widths: list[int]
) -> None:
    assert [shape[1] for shape in shapes(model((FULL, full), (WINDOW, windows)))] == widths


def test_layers_are_dealt_round_robin() -> None:
    plan = right_plan(model((FULL, 2), (WINDOW, 4)))
    assert plan.groups is not None
    assert [group.layers for group in plan.groups[1:]] == [("model.1.0", "model.1.2"), ("model.1.1", "model.1.3")]


# Rule 8


def test_a_hidden_state_takes_the_largest_block_that_fits_the_page() -> None:
    hidden = HiddenStateSpec(block_size=16, num_kv_heads=4, head_size=4096)
    case = model((FULL, 1), (WINDOW, 1), (hidden, 1))
    assert shapes(case)[2] == ("hidden_state", 1, 2, 65_536)


def test_groups_grow_until_a_hidden_state_fits() -> None:
    hidden = HiddenStateSpec(block_size=16, num_kv_heads=4, head_size=20_000)
    assert shapes(model((FULL, 1), (WINDOW, 1), (hidden, 1))) == [
        ("full", 1, 48, 196_608), ("sliding_window", 1, 48, 196_608), ("hidden_state", 1, 1, 196_608),
    ]  # fmt: skip


def test_hidden_states_alone_need_no_page_in_common() -> None:
    case = model(
        (HiddenStateSpec(block_size=16, num_kv_heads=1, head_size=64), 1),
        (HiddenStateSpec(block_size=32, num_kv_heads=2, head_size=64), 1),
        under=settings(layout="BLHNC"),
    )
    assert shapes(case) == [("hidden_state", 1, 16, 2048), ("hidden_state", 1, 32, 8192)]


# The contract `isolate`: the table of VLLM.md 7


def test_isolate_keeps_the_block_of_a_latent_target() -> None:
    draft = structs.replace(REPLICATED_WINDOW, dtype="float8_e4m3fn", kv_quant_mode="FP8_PER_TENSOR")
    case = model((MLA, 4), (draft, 5), under=settings(dcp=4, layout_origin="forced"))
    native = shapes(case)
    assert native[0] == ("mla", 4, 128, 32_768)
    assert sizes(case) == (512, 64)
    apart = structs.replace(case, settings=settings(dcp=4, layout_origin="forced", layout="BLHNC"))
    assert shapes(apart, "isolate") == [("mla", 4, 64, 16_384), ("sliding_window", 5, 64, 32_768)]
    assert sizes(apart, "isolate") == (256, 64)


def test_isolate_plans_what_native_refuses() -> None:
    target = structs.replace(MLA, state_content_bytes=656)
    state = MambaSpec(
        block_size=64, shapes=((35_840,),), dtypes=("uint8",), page_size_padded=TARGET_PAGE, mamba_cache_mode="align"
    )
    forced = settings(dcp=4, layout_origin="forced", mamba_mode="align")
    case = model((target, 2), (state, 6), (REPLICATED_WINDOW, 5), under=forced)
    assert refusal(case).type == "NotImplementedError"
    packed = structs.replace(case, settings=structs.replace(case.settings, layout="BLHNC"))
    plan = right_plan(packed, "isolate")
    assert [shape[:3] for shape in shapes(packed, "isolate")] == [
        ("mla", 2, 64), ("mamba", 2, 64), ("mamba", 2, 64), ("mamba", 2, 64), ("sliding_window", 5, 64),
    ]  # fmt: skip
    assert plan.placement is not None
    assert {record.block_stride for record in plan.placement[0].records} == {327_680}
    assert sizes(packed, "isolate") == (256, 64)


def test_isolate_changes_nothing_in_a_model_of_one_mode() -> None:
    case = model((FULL, 2), (WINDOW, 4), under=settings(dcp=1))
    assert expected_plan(case, RULES, "isolate") == expected_plan(case, RULES, "native")


# Placement, sizes and capacity


@pytest.mark.parametrize(
    ("layout", "starts", "stride"),
    [("LBHNC", [0, 8194 * 65_536], 65_536), ("BLHNC", [0, 65_536], 131_072), ("LHBNC", [0, 8194 * 65_536], 8192),
     ("BHLNC", [0, 8192], 131_072)],
)  # fmt: skip
def test_strides_follow_the_order_of_the_layout(layout: str, starts: list[int], stride: int) -> None:
    plan = right_plan(structs.replace(model((FULL, 2)), settings=settings(layout=layout)))
    assert plan.placement is not None
    (record,) = plan.placement[0].records
    assert [record.offset + at * record.layer_stride for at in range(2)] == starts
    assert record.block_stride == stride
    assert record.size == 8194 * 131_072


def test_strides_of_two_paces_are_refused_in_groups_that_overlay_each_other() -> None:
    case = model((structs.replace(FULL, block_stride_alignment=65_537), 1), (WINDOW, 1))
    assert refusal(case).stage == "place"


def test_all_workers_get_the_smallest_number_of_blocks() -> None:
    case = staged([(FULL, 2)], [(FULL, 3)])
    plan = right_plan(case)
    assert plan.placement is not None
    assert [placement.num_blocks for placement in plan.placement] == [5462, 5462]
    assert [placement.records[0].size for placement in plan.placement] == [5462 * 131_072, 5462 * 196_608]


def test_a_stage_without_layers_places_nothing() -> None:
    plan = right_plan(staged([(FULL, 2)], []))
    assert plan.placement is not None
    assert plan.placement[1].records == ()
    assert plan.placement[1].num_blocks == 8194


def test_the_null_block_is_counted_when_a_model_is_admitted() -> None:
    exact = structs.replace(model((FULL, 1)), settings=settings(workers=(Worker(memory=512 * 65_536),)))
    assert refusal(exact).stage == "place"
    spare = structs.replace(model((FULL, 1)), settings=settings(workers=(Worker(memory=513 * 65_536),)))
    capacity = right_plan(spare).capacity
    assert capacity is not None
    assert capacity.request_blocks == (512,)


def test_a_fitted_length_fills_the_pool() -> None:
    case = structs.replace(model((FULL, 1)), settings=settings(workers=(Worker(memory=100 * 65_536),), auto_fit=True))
    capacity = right_plan(case).capacity
    assert capacity is not None
    assert capacity.model_len == 99 * 16


def test_a_window_split_by_dcp_is_refused() -> None:
    assert refusal(model((WINDOW, 1), under=settings(dcp=2))).stage == "place"


def test_widths_follow_the_span_and_state_blocks_the_sequence() -> None:
    state = MambaSpec(
        block_size=768, shapes=((64,),), dtypes=("uint8",), mamba_cache_mode="align", num_speculative_blocks=7
    )
    case = model((state, 1), under=settings(dcp=16, mamba_mode="align", model_len=1_000_000))
    found = right_plan(case).sizes
    assert found is not None
    assert found.widths == (1310,)


def test_a_match_unit_must_divide_the_spans() -> None:
    case = model((FULL, 1), (WINDOW, 1), under=settings(prefix_match_unit=24))
    assert refusal(case).stage == "size"


def test_chunks_bill_what_is_in_flight() -> None:
    chunk = ChunkedLocalSpec(block_size=16, num_kv_heads=8, head_size=128, attention_chunk_size=1000)
    capacity = right_plan(model((chunk, 1))).capacity
    assert capacity is not None
    assert capacity.request_blocks == (191,)


# Drafts, and the choice of rules


def test_draft_groups_are_marked_from_their_layers() -> None:
    case = model((FULL, 2), (WINDOW, 2), under=settings(speculative=EAGLE))
    marked = keep_layers(case, [structs.replace(one, draft=one.name == "model.0.1") for one in case.layers])
    plan = right_plan(marked)
    assert plan.groups is not None
    assert [group.draft for group in plan.groups] == [True, False]


def test_a_method_that_drops_no_block_marks_no_group() -> None:
    case = model((FULL, 2), (WINDOW, 2), under=settings(speculative=Speculative(method="dflash")))
    plan = right_plan(keep_layers(case, [structs.replace(one, draft=True) for one in case.layers]))
    assert plan.groups is not None
    assert [group.draft for group in plan.groups] == [False, False]


def test_a_chain_of_draft_modules_widens_every_window() -> None:
    case = model((WINDOW, 1), under=settings(speculative=Speculative(method="mtp", tokens=3, modules=2)))
    assert right_plan(case).specs == (structs.replace(WINDOW, extra_retained_tokens=2),)


def test_rules_are_chosen_by_version_and_generation() -> None:
    assert rules_for("0.33.0", "packed", ()) == RULE_SETS["0.33"]
    assert rules_for("0.30.1.dev3+g1234567", "packed", ()) == RULE_SETS["0.30"]
    assert rules_for("0.34.0", "packed", ()) is None
    assert rules_for("0.33.0", "unheard-of", ()) is None
    assert rules_for("unknown", "packed", ()) is None


def test_a_path_without_rules_is_said_to_be_one() -> None:
    state = MambaSpec(block_size=16, shapes=((64,),), dtypes=("float32",))
    latent = MlaSpec(block_size=64, num_kv_heads=1, head_size=128, tokens_per_state=4)
    assert isinstance(expected_plan(model((latent, 1), (state, 1)), RULE_SETS["0.30"], "native"), Unruled)


def test_before_layouts_latent_windows_come_in_tuples_beside_the_plain_group() -> None:
    window = SlidingWindowMlaSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128)
    case = model((MLA, 2), (window, 5))
    assert shapes(case, version="0.28") == [
        ("mla", 2, 64, 32_768), ("sliding_window_mla", 2, 16, 4096), ("sliding_window_mla", 2, 16, 4096),
        ("sliding_window_mla", 1, 16, 2048),
    ]  # fmt: skip
    assert shapes(case)[0] == ("mla", 2, 64, 16_384)


def test_before_layouts_nothing_is_left_out_of_the_tuples() -> None:
    window = SlidingWindowMlaSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128)
    assert sum(shape[1] for shape in shapes(model((MLA, 2), (window, 2), (FULL, 1)), version="0.28")) == 5


def test_full_spec_of_one_token_blocks_is_planned() -> None:
    one = FullSpec(block_size=1, num_kv_heads=1, head_size=64)
    assert shapes(model((one, 2))) == [("full", 2, 1, 256)]
