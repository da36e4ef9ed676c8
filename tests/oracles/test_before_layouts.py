"""The rules of 0.26 to 0.28, which know no layouts: tuples of latent layers, tensors that layers share, older sizes."""

from __future__ import annotations

import pytest
from msgspec import structs

from oracles.case import Case, HiddenStateSpec, MambaSpec, MlaSpec, Settings, SinkSpec, SlidingWindowMlaSpec, Worker
from oracles.plan import Plan, Planned, Record, Refused
from oracles.reference import RULE_SETS, Unruled, expected_plan, rules_for
from tests.oracles.models import FULL, MLA, STATE, WINDOW, breaches, model, settings, staged, with_records

OLD = ("0.26", "0.27", "0.28")
LATENT_WINDOW = SlidingWindowMlaSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128)
"""2,048 bytes; ``MLA`` has 16,384."""


def planned(case: Case, version: str = "0.28") -> Plan:
    outcome = expected_plan(case, RULE_SETS[version], "native")
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def shapes(case: Case, version: str) -> list[tuple[str, int, int]]:
    """(kind, layers, bytes of a page) of each group."""
    return [(g.kind, len(g.layers), g.page_bytes) for g in planned(case, version).groups or ()]


def records(case: Case, version: str = "0.28", worker: int = 0) -> tuple[Record, ...]:
    plan = planned(case, version)
    assert plan.placement is not None
    return plan.placement[worker].records


@pytest.mark.parametrize("version", OLD)
def test_each_version_has_its_rules(version: str) -> None:
    assert rules_for(f"{version}.0", "tuples", ()) == RULE_SETS[version]
    assert rules_for(f"{version}.0", "packed", ()) is None


# Placement


@pytest.mark.parametrize("version", OLD)
def test_groups_share_a_tensor_for_each_place(version: str) -> None:
    case = model((FULL, 2), (WINDOW, 2), under=settings(workers=(Worker(memory=1000 * 131_072),)))
    assert records(case, version) == (
        Record(size=65_536_000, layers=("model.0.0", "model.1.0"), block_stride=0, aliased=True),
        Record(size=65_536_000, layers=("model.0.1", "model.1.1"), block_stride=0, aliased=True),
    )


def test_a_single_wrapper_gives_each_layer_a_tensor() -> None:
    narrow = structs.replace(FULL, num_kv_heads=4)
    case = model((FULL, 1), (narrow, 1), under=settings(workers=(Worker(memory=1000 * 98_304),)))
    assert records(case) == (
        Record(size=65_536_000, layers=("model.0.0",), block_stride=0, aliased=True),
        Record(size=32_768_000, layers=("model.1.0",), block_stride=0, aliased=True),
    )


def test_several_wrappers_share_one_pool() -> None:
    case = model((MLA, 2), (LATENT_WINDOW, 4), under=settings(workers=(Worker(memory=1000 * 32_768),), model_len=1024))
    assert [(record.offset, record.layers) for record in records(case)] == [
        (0, ("model.0.0", "model.1.0", "model.1.1")), (16_384, ("model.0.1",)), (2048, ("model.1.2", "model.1.3")),
    ]  # fmt: skip
    assert {(record.size, record.block_stride) for record in records(case)} == {(32_768_000, 32_768)}


def test_in_0_26_windows_take_the_slots_of_the_latent_pages() -> None:
    case = model((MLA, 2), (LATENT_WINDOW, 4), under=settings(workers=(Worker(memory=1000 * 32_768),), model_len=1024))
    assert shapes(case, "0.26") == [
        ("mla", 2, 32_768),
        ("sliding_window_mla", 2, 32_768),
        ("sliding_window_mla", 2, 32_768),
    ]
    assert [(record.offset, record.layers) for record in records(case, "0.26")] == [
        (0, ("model.0.0", "model.1.0", "model.1.1")), (16_384, ("model.0.1", "model.1.2", "model.1.3")),
    ]  # fmt: skip


def test_in_0_26_windows_wider_than_every_latent_page_go_the_common_way() -> None:
    wide = structs.replace(LATENT_WINDOW, head_size=1024)
    case = model((MLA, 2), (wide, 2), under=settings(model_len=1024))
    assert shapes(case, "0.26") == [("mla", 2, 32_768), ("sliding_window_mla", 2, 32_768)]
    assert shapes(case, "0.27") == [("mla", 2, 32_768), ("sliding_window_mla", 2, 65_536)]


def test_a_stage_without_layers_places_nothing() -> None:
    assert records(staged([(FULL, 2)], []), worker=1) == ()


def test_the_null_block_is_not_set_aside() -> None:
    case = model((FULL, 1), under=Settings(workers=(Worker(memory=512 * 65_536),)))
    assert isinstance(expected_plan(case, RULE_SETS["0.29"], "native"), Refused)
    assert isinstance(expected_plan(case, RULE_SETS["0.28"], "native"), Planned)


# Grouping


def test_recurrent_layers_of_two_pages_share_a_wrapper() -> None:
    larger = structs.replace(STATE, shapes=((8192,),))
    case = model((STATE, 1), (larger, 1), under=settings(mamba_mode="align"))
    assert shapes(case, "0.28") == [("mamba", 2, 49_152)]
    assert shapes(case, "0.29") == [("mamba", 1, 32_768), ("mamba", 1, 32_768)]


def test_to_0_27_a_hidden_state_fills_the_page() -> None:
    hidden = HiddenStateSpec(block_size=16, num_kv_heads=3, head_size=1024)
    case = model((FULL, 1), (WINDOW, 1), (hidden, 1))
    blocks = {v: [g.block_size for g in planned(case, v).groups or ()][2] for v in ("0.27", "0.28")}
    assert blocks == {"0.27": 10, "0.28": 8}


def test_in_0_26_mla_beside_windows_that_do_not_divide_is_refused() -> None:
    case = model((MLA, 1), (structs.replace(WINDOW, block_size=64, num_kv_heads=3, head_size=100), 1))
    assert isinstance(expected_plan(case, RULE_SETS["0.26"], "native"), Refused)
    assert shapes(case, "0.27") == [("full+mla", 2, 16_384 + 76_800)]


def test_in_0_26_only_equal_layers_are_collected() -> None:
    sink = SinkSpec(block_size=16, num_kv_heads=8, head_size=128, sink_len=4)
    case = model((sink, 2), (structs.replace(sink, non_causal=True), 2), (WINDOW, 2))
    assert [layers for _, layers, _ in shapes(case, "0.26")] == [2, 2, 2]
    assert [layers for _, layers, _ in shapes(case, "0.27")] == [2, 2, 2]
    assert planned(case, "0.26").groups != planned(case, "0.27").groups


def test_in_0_26_local_layers_keep_their_block_without_the_hybrid_manager() -> None:
    case = model((FULL, 1), (structs.replace(WINDOW, block_size=32), 1), under=settings(hybrid_manager=False))
    assert isinstance(expected_plan(case, RULE_SETS["0.26"], "native"), Refused)
    assert shapes(case, "0.27") == [("full", 2, 65_536)]


def test_to_0_27_quantised_states_are_not_ruled() -> None:
    for spec in (
        structs.replace(FULL, kv_quant_mode="INT8_PER_TOKEN_HEAD"),
        MlaSpec(block_size=64, num_kv_heads=1, head_size=576, dtype="uint8", cache_dtype_str="fp8_ds_mla"),
    ):
        assert isinstance(expected_plan(model((spec, 1)), RULE_SETS["0.27"], "native"), Unruled)
        assert not isinstance(expected_plan(model((spec, 1)), RULE_SETS["0.28"], "native"), Unruled)


# Sizes


def test_to_0_27_the_hash_unit_backs_off_beside_another_recurrent_block() -> None:
    fine = MambaSpec(block_size=48, shapes=((64,),), dtypes=("float32",), mamba_cache_mode="align")
    case = model((FULL, 1), (fine, 1), under=settings(mamba_mode="align"))
    units = {v: sizes.hash_block for v in ("0.27", "0.28") if (sizes := planned(case, v).sizes) is not None}
    assert units == {"0.27": 48, "0.28": 16}


# Laws over tensors


SHARED = model((FULL, 2), (WINDOW, 2))
"""Two tensors, each with a layer of either group."""


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize(
    "case",
    [
        SHARED,
        model((FULL, 1), (structs.replace(FULL, num_kv_heads=4), 1)),
        model((MLA, 2), (LATENT_WINDOW, 3)),
        staged([(FULL, 2), (WINDOW, 2)], [(FULL, 2)]),
        staged([(MLA, 2)], [(LATENT_WINDOW, 3)]),
        model(),
    ],
)
def test_no_law_objects_to_right_tensors(case: Case, version: str) -> None:
    assert breaches(case, planned(case, version)) == []


def test_tensors_that_leave_memory_unused_break_m2() -> None:
    half = structs.replace(SHARED, settings=settings(workers=(Worker(memory=2**31),)))
    assert {breach.law for breach in breaches(half, planned(SHARED))} == {"M2"}


def test_a_tensor_that_is_too_small_breaks_m3() -> None:
    plan = with_records(planned(SHARED), lambda at, r: structs.replace(r, size=r.size // 2) if at == 0 else r)
    case = structs.replace(SHARED, settings=settings(workers=(Worker(memory=3 * 2**28),)))
    assert "M3" in {breach.law for breach in breaches(case, plan)}


def test_two_layers_of_a_group_in_one_tensor_break_m4() -> None:
    plan = planned(SHARED)
    names = ("model.0.0", "model.0.1", "model.1.0", "model.1.1")
    one = with_records(plan, lambda at, r: structs.replace(r, layers=names, size=2 * r.size) if at == 0 else None)
    assert {breach.law for breach in breaches(SHARED, one)} == {"M4"}


def test_layers_of_two_pages_in_one_tensor_break_m5() -> None:
    case = model((MLA, 2), (LATENT_WINDOW, 3), under=settings(model_len=1024))
    apart = with_records(planned(case), lambda _, r: structs.replace(r, block_stride=16_384) if r.offset == 0 else r)
    assert "M5" in {breach.law for breach in breaches(case, apart)}
