"""Each law objects to a plan that breaks it, alone, and to no correct plan however unusual."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec import structs

from oracles.case import Case, MlaSpec, Settings, Spec, Speculative, Worker, keep_layers, replicated_part, sharded_part
from oracles.derived import (
    DERIVED,
    MORE_MEMORY,
    PERMUTED,
    RENAMED,
    WIDER_DCP,
    permuted,
    renamed,
    wider_dcp,
    with_more_memory,
)
from oracles.law import LAWS, Evidence, Parts
from oracles.laws import broken_laws
from oracles.placement import expected_records
from oracles.plan import Capacity, Group, Plan, Planned, Refusal, Refused, Sizes
from oracles.reference import expected_plan
from tests.oracles.models import (
    EAGLE,
    FULL,
    MLA,
    RULES,
    STATE,
    UNUSUAL,
    WINDOW,
    breaches,
    broken,
    evidence,
    groups_only,
    model,
    planned,
    right_plan,
    settings,
    with_group,
    with_records,
)

HYBRID = model((FULL, 2), (WINDOW, 2))
"""Two groups of two layers; 8,194 blocks; a request of 8,192 tokens holds 512 + 193 blocks."""

DENSE = model((FULL, 2))
UNEQUAL = model((FULL, 3), (WINDOW, 2), under=Settings())
"""Groups of 2, 1 and 2 layers. 8,192 blocks divide a page, so a shift by one page keeps law M9."""

MIXED = model((MLA, 4), (structs.replace(WINDOW, replicated=True), 2), under=settings(dcp=4, layout="BLNHC"))


def _capacity(plan: Plan) -> Capacity:
    assert plan.capacity is not None
    return plan.capacity


def _sizes(plan: Plan) -> Sizes:
    assert plan.sizes is not None
    return plan.sizes


def a_layer_is_dropped() -> Evidence:
    plan = right_plan(HYBRID)
    assert plan.groups is not None
    return evidence(HYBRID, with_group(groups_only(plan), 1, layers=plan.groups[1].layers[:1]))


def a_group_denies_its_mode() -> Evidence:
    return evidence(HYBRID, with_group(groups_only(right_plan(HYBRID)), 0, sharded=False))


def two_windows_share_a_group() -> Evidence:
    narrow = structs.replace(WINDOW, sliding_window=512)
    case = model((FULL, 1), (WINDOW, 1), (narrow, 1))
    plan = groups_only(right_plan(case))
    assert plan.groups is not None
    full, wide, other = plan.groups
    both = Group(
        layers=wide.layers + other.layers, block_size=16, page_bytes=131_072, span_tokens=16, kind="sliding_window",
        sharded=True, members=(plan.specs.index(WINDOW), plan.specs.index(narrow)),
    )  # fmt: skip
    return evidence(case, structs.replace(plan, groups=(full, both)))


def a_quantisation_is_forgotten() -> Evidence:
    case = model((structs.replace(FULL, kv_quant_mode="FP8_PER_TENSOR"), 2))
    plan = right_plan(case)
    return evidence(case, structs.replace(plan, specs=(structs.replace(plan.specs[0], kv_quant_mode="NONE"),)))


def a_page_is_misstated() -> Evidence:
    return evidence(HYBRID, with_group(right_plan(HYBRID), 0, page_bytes=65_537))


def a_part_is_split_by_the_other() -> Evidence:
    parts = Parts(
        sharded=expected_plan(sharded_part(MIXED), RULES, "isolate"),  # type: ignore[arg-type]
        replicated=expected_plan(replicated_part(MIXED), RULES, "isolate"),  # type: ignore[arg-type]
    )
    plan = groups_only(right_plan(MIXED, "isolate"))
    assert plan.groups is not None
    target, draft = plan.groups
    halves = tuple(
        structs.replace(target, layers=target.layers[at::2], page_bytes=target.page_bytes) for at in range(2)
    )
    shown = structs.replace(plan, groups=(*halves, draft))
    return evidence(MIXED, shown, contract="isolate", parts=parts)


def the_patch_changes_a_dense_model() -> Evidence:
    plan = right_plan(DENSE)
    other = structs.replace(plan, sizes=structs.replace(_sizes(plan), configured_block=32))
    return evidence(DENSE, plan, counterpart=planned(other))


def a_plan_hangs_on_names() -> Evidence:
    other = with_group(right_plan(renamed(HYBRID)), 0, draft=True)
    return evidence(HYBRID, right_plan(HYBRID), derived={RENAMED: planned(other)})


def the_second_plan_differs() -> Evidence:
    other = with_group(right_plan(HYBRID), 0, draft=True)
    return evidence(HYBRID, right_plan(HYBRID), second=planned(other))


def an_input_is_altered() -> Evidence:
    return evidence(HYBRID, right_plan(HYBRID), changed=("specs.block_size",))


def equal_layers_are_told_apart() -> Evidence:
    other = right_plan(permuted(HYBRID))
    assert other.groups is not None
    moved = with_group(other, 0, layers=other.groups[0].layers + other.groups[1].layers[:1])
    return evidence(HYBRID, right_plan(HYBRID), derived={PERMUTED: planned(moved)})


def _drafted() -> Case:
    case = model((FULL, 2), (WINDOW, 2), under=settings(speculative=EAGLE))
    marked = [structs.replace(layer, draft=layer.name.startswith("model.1")) for layer in case.layers]
    return keep_layers(case, marked)


def a_target_is_marked_as_a_draft() -> Evidence:
    return evidence(_drafted(), with_group(groups_only(right_plan(_drafted())), 0, draft=True))


def a_replicated_draft_changes_with_dcp() -> Evidence:
    other = right_plan(wider_dcp(MIXED))
    widths = (*_sizes(other).widths[:-1], 1024)
    changed = structs.replace(other, sizes=structs.replace(_sizes(other), widths=widths))
    return evidence(MIXED, right_plan(MIXED), derived={WIDER_DCP: planned(changed)})


def a_refusal_is_bare() -> Evidence:
    refusal = Refusal(stage="place", type="AssertionError", message="")
    return structs.replace(
        evidence(HYBRID, right_plan(HYBRID)),
        outcome=Refused(refusals=(refusal,), plan=groups_only(right_plan(HYBRID))),
    )


def the_scheduler_block_is_doubled() -> Evidence:
    plan = right_plan(HYBRID)
    return evidence(HYBRID, structs.replace(plan, sizes=structs.replace(_sizes(plan), scheduler_block=32)))


def the_hash_unit_straddles_blocks() -> Evidence:
    plan = right_plan(HYBRID)
    return evidence(HYBRID, structs.replace(plan, sizes=structs.replace(_sizes(plan), hash_block=12)))


def a_wrapper_disagrees_with_its_layers() -> Evidence:
    plan = right_plan(HYBRID)
    return evidence(HYBRID, structs.replace(plan, sizes=structs.replace(_sizes(plan), widths=(512, 600))))


def the_null_block_is_given_away() -> Evidence:
    blocks = 512 + 193
    case = structs.replace(HYBRID, settings=Settings(workers=(Worker(memory=blocks * 131_072),)))
    plan = structs.replace(right_plan(HYBRID), capacity=None)
    assert plan.placement is not None
    both: tuple[Spec, ...] = (FULL, WINDOW)
    local = [[(f"model.{at}.{i}", spec) for i in range(2)] for at, spec in enumerate(both)]
    records = expected_records("LBNHC", local, blocks, RULES)
    placement = (structs.replace(plan.placement[0], num_blocks=blocks, records=records),)
    return evidence(case, structs.replace(plan, placement=placement))


def the_null_block_is_claimed() -> Evidence:
    case = structs.replace(HYBRID, settings=Settings(block_override=2 * (512 + 193)))
    return evidence(case, right_plan(case))


def more_is_claimed_than_the_pool_has() -> Evidence:
    plan = right_plan(HYBRID)
    claim = structs.replace(_capacity(plan), concurrency=_capacity(plan).concurrency + 0.25)
    return evidence(HYBRID, structs.replace(plan, capacity=claim))


def more_memory_means_less() -> Evidence:
    other = right_plan(with_more_memory(HYBRID))
    fewer = structs.replace(other, capacity=structs.replace(_capacity(other), tokens=1))
    return evidence(HYBRID, right_plan(HYBRID), derived={MORE_MEMORY: planned(fewer)})


def a_record_is_left_out() -> Evidence:
    return evidence(HYBRID, with_records(right_plan(HYBRID), lambda at, record: record if at == 0 else None))


def half_the_memory_is_left() -> Evidence:
    case = structs.replace(HYBRID, settings=settings(workers=(Worker(memory=2**31),)))
    return evidence(case, right_plan(HYBRID))


def a_record_begins_too_late() -> Evidence:
    shift = 65_536 * 8194
    return evidence(DENSE, with_records(right_plan(DENSE), lambda _, r: structs.replace(r, offset=shift)))


def two_layers_have_one_place() -> Evidence:
    return evidence(DENSE, with_records(right_plan(DENSE), lambda _, r: structs.replace(r, layer_stride=0)))


def a_group_is_one_block_off() -> Evidence:
    return evidence(
        UNEQUAL,
        with_records(right_plan(UNEQUAL), lambda at, r: structs.replace(r, offset=65_536) if at == 1 else r),
    )


def a_stride_loses_its_alignment() -> Evidence:
    case = model((structs.replace(FULL, block_stride_alignment=65_537), 2))
    return evidence(case, with_records(right_plan(case), lambda _, r: structs.replace(r, block_stride=65_536)))


def an_offset_is_odd() -> Evidence:
    case = model((structs.replace(FULL, block_stride_alignment=65_537), 2))
    return evidence(case, with_records(right_plan(case), lambda _, r: structs.replace(r, offset=1)))


PLANTED: dict[str, Callable[[], Evidence]] = {
    "G1": a_layer_is_dropped,
    "G2": a_group_denies_its_mode,
    "G3": two_windows_share_a_group,
    "G4": a_quantisation_is_forgotten,
    "G5": a_page_is_misstated,
    "G6": a_part_is_split_by_the_other,
    "G7": the_patch_changes_a_dense_model,
    "G8": a_plan_hangs_on_names,
    "G9": the_second_plan_differs,
    "G10": an_input_is_altered,
    "G11": equal_layers_are_told_apart,
    "G12": a_target_is_marked_as_a_draft,
    "G13": a_replicated_draft_changes_with_dcp,
    "R1": a_refusal_is_bare,
    "S1": the_scheduler_block_is_doubled,
    "S2": the_hash_unit_straddles_blocks,
    "S3": a_wrapper_disagrees_with_its_layers,
    "C1": the_null_block_is_given_away,
    "C3": the_null_block_is_claimed,
    "C4": more_is_claimed_than_the_pool_has,
    "C5": more_memory_means_less,
    "M1": a_record_is_left_out,
    "M2": half_the_memory_is_left,
    "M3": a_record_begins_too_late,
    "M4": two_layers_have_one_place,
    "M5": a_group_is_one_block_off,
    "M7": a_stride_loses_its_alignment,
    "M9": an_offset_is_odd,
}
"""One wrong plan for each law. M6 is apart: content outgrows a page only where facts were lost, so G4 breaks too."""


def test_every_law_has_a_planted_fault() -> None:
    assert set(PLANTED) | {"M6"} == set(LAWS)


@pytest.mark.parametrize("law", PLANTED)
def test_a_planted_fault_breaks_its_law_and_no_other(law: str) -> None:
    found = broken_laws(PLANTED[law]())
    assert {breach.law for breach in found} == {law}, found


def test_content_beyond_the_page_breaks_m6_and_the_loss_behind_it() -> None:
    heads = structs.replace(FULL, num_kv_heads=16)
    case = model((FULL, 1), (heads, 1))
    plan = right_plan(model((FULL, 2)))
    names = tuple(layer.name for layer in case.layers)
    shown = structs.replace(
        with_group(plan, 0, layers=names),
        placement=with_records(plan, lambda _, r: structs.replace(r, layers=names)).placement,
        sizes=None,
        capacity=None,
    )
    assert shown.placement is not None
    shown = structs.replace(shown, placement=(structs.replace(shown.placement[0], group_layers=(names,)),))
    assert broken(case, shown) == {"G4", "M6"}


@pytest.mark.parametrize("name", UNUSUAL)
def test_no_law_objects_to_an_unusual_plan(name: str) -> None:
    case = UNUSUAL[name]
    derived = {key: expected_plan(derive(case), RULES, "native") for key, derive in DERIVED.items()}
    assert breaches(case, right_plan(case), derived=derived) == []


def sound_evidence() -> Iterator[Evidence]:
    """Evidence that no law may object to, with something for each law to look at."""
    for case in UNUSUAL.values():
        derived = {key: expected_plan(derive(case), RULES, "native") for key, derive in DERIVED.items()}
        yield evidence(case, right_plan(case), derived=derived)
    yield evidence(_drafted(), right_plan(_drafted()))
    parts = Parts(
        sharded=expected_plan(sharded_part(MIXED), RULES, "isolate"),  # type: ignore[arg-type]
        replicated=expected_plan(replicated_part(MIXED), RULES, "isolate"),  # type: ignore[arg-type]
    )
    yield evidence(MIXED, right_plan(MIXED, "isolate"), contract="isolate", parts=parts)
    same = planned(right_plan(HYBRID))
    yield evidence(HYBRID, right_plan(HYBRID), counterpart=same, twin=same)
    typed = Refusal(stage="place", type="ValueError", message="the model does not fit the memory")
    refused = Refused(refusals=(typed,), plan=groups_only(right_plan(HYBRID)))
    yield structs.replace(evidence(HYBRID, right_plan(HYBRID)), outcome=refused)


def test_every_law_is_put_to_a_correct_plan_and_keeps_silent() -> None:
    asked: set[str] = set()
    for one in sound_evidence():
        assert broken_laws(one) == []
        asked |= {name for name, law in LAWS.items() if law.applies(one)}
    assert asked == set(LAWS) - {"G10"}  # a changed input is all its evidence, and never sound


def test_an_unasked_derived_case_is_not_judged() -> None:
    plain = evidence(HYBRID, right_plan(HYBRID))
    assert not any(LAWS[name].applies(plain) for name in ("G8", "G11", "G13", "C5"))


def test_a_forced_layout_is_told_apart_in_the_path() -> None:
    forced = structs.replace(
        two_layers_have_one_place(), case=structs.replace(DENSE, settings=settings(layout_origin="forced"))
    )
    assert [breach.path for breach in broken_laws(forced)] == ["placement[].overlap.group.forced"]


def test_unmarked_drafts_are_no_breach_while_no_group_is_marked() -> None:
    case = structs.replace(HYBRID, settings=Settings(speculative=Speculative(method="mtp")))
    case = keep_layers(case, [structs.replace(layer, draft=True) for layer in case.layers])
    bare = structs.replace(groups_only(right_plan(HYBRID)))
    assert broken(case, bare) == set()


def test_an_alignment_that_became_a_padding_is_not_lost() -> None:
    own = MlaSpec(block_size=64, num_kv_heads=1, head_size=100, alignment=576)
    case = model((own, 2))
    plan = right_plan(case)
    stated = structs.replace(own, alignment=None, page_size_padded=13_248)
    assert broken(case, structs.replace(plan, specs=(stated,))) == set()


def test_a_scaled_recurrent_block_is_no_mere_page() -> None:
    case = model((STATE, 2), under=settings(mamba_mode="align"))
    plan = groups_only(right_plan(case))
    scaled = with_group(structs.replace(plan, specs=(structs.replace(STATE, block_size=512),)), 0, block_size=512)
    assert {breach.path for breach in breaches(case, scaled)} == {"groups[].mamba.block_size"}


def test_planned_outcomes_without_pools_are_left_alone() -> None:
    case = model()
    assert isinstance(expected_plan(case, RULES, "native"), Planned)
    assert broken(case, right_plan(case)) == set()
