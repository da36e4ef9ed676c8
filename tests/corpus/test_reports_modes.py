"""Reports 1 to 6 and 30: sharded, replicated and recurrent layers side by side, and their block tables."""

from __future__ import annotations

import pytest

from fuzz.planners.process import Planner
from oracles.case import is_mixed, mode_of, sharded_part
from oracles.geometry import page_bytes
from oracles.plan import Group, Plan
from tests.corpus.asking import (
    ask,
    block_bytes,
    broken,
    concurrency,
    groups,
    placement_faults,
    plan,
    pools,
    refusal,
    report,
    request_blocks,
    shapes,
    table_widths,
)

LAYER_OUTER = ("r01-window-draft-block-256.layer-outer", "r01-window-draft-block-2304.layer-outer")
BLOCK_OUTER = ("r01-window-draft-block-256.block-outer", "r01-window-draft-block-2304.block-outer")
R01_TARGET = (
    *2 * (("mamba", 9, 2304, 2304, 1_511_424),),
    *2 * (("mamba", 8, 2304, 2304, 1_511_424),),
    ("mla", 11, 2304, 9216, 1_511_424),
)


def drafts(planned: tuple[Group, ...]) -> list[Group]:
    """Groups that hold draft layers."""
    return [group for group in planned if any("draft" in name for name in group.layers)]


def test_r01_the_cases_mix_modes() -> None:
    assert all(is_mixed(report(name)) for name in (*LAYER_OUTER, *BLOCK_OUTER))


@pytest.mark.parametrize("name", [*LAYER_OUTER, *BLOCK_OUTER])
def test_r01_isolate_groups_the_target_as_without_the_draft(name: str, patched: Planner) -> None:
    case = report(name)
    together = groups(ask(patched, case))
    alone = groups(ask(patched, sharded_part(case)))
    assert [group.layers for group in together[: len(alone)]] == [group.layers for group in alone]
    assert shapes(ask(patched, case))[: len(alone)] == R01_TARGET
    assert drafts(together) == list(together[len(alone) :])


@pytest.mark.parametrize("name", BLOCK_OUTER)
def test_r01_packing_groups_the_target_as_without_the_draft(name: str, unpatched: Planner) -> None:
    case = report(name)
    together = groups(ask(unpatched, case))
    alone = groups(ask(unpatched, sharded_part(case)))
    assert [group.layers for group in together[: len(alone)]] == [group.layers for group in alone]


@broken("page unification cuts the target to the draft's width, or refuses it")
@pytest.mark.parametrize("name", LAYER_OUTER)
def test_r01_native_planning_groups_the_target_as_without_the_draft(name: str, unpatched: Planner) -> None:
    case = report(name)
    together = groups(ask(unpatched, case))
    alone = groups(ask(unpatched, sharded_part(case)))
    assert [group.layers for group in together[: len(alone)]] == [group.layers for group in alone]


def test_r01_native_planning_cuts_the_target_to_the_width_of_the_draft(unpatched: Planner) -> None:
    assert shapes(plan(unpatched, report(LAYER_OUTER[0]))) == (
        *6 * (("mamba", 5, 2304, 2304, 1_511_424),),
        ("mamba", 4, 2304, 2304, 1_511_424),
        *2 * (("mla", 4, 2304, 9216, 1_511_424),),
        ("mla", 3, 2304, 9216, 1_511_424),
        ("sliding_window", 5, 256, 256, 1_511_424),
    )


def test_r01_native_planning_refuses_a_draft_whose_page_does_not_fit_the_target(unpatched: Planner) -> None:
    found = refusal(unpatched, report(LAYER_OUTER[1]), "group")
    assert found.type == "NotImplementedError"
    assert "page size is not divisible by the maximum page size" in found.message


@pytest.mark.parametrize("name", [LAYER_OUTER[0], *BLOCK_OUTER])
def test_r01_no_group_mixes_modes(name: str, either: Planner) -> None:
    case = report(name)
    modes = {layer.name: mode_of(case.spec_of(layer)) for layer in case.layers}
    assert all(len({modes[name] for name in group.layers}) == 1 for group in groups(ask(either, case)))


# Report 2: the draft's page is 9 MiB ÷ tp while the target's stays 1,511,424 bytes.


@pytest.mark.parametrize(
    ("tp", "native", "isolated", "claims"),
    [
        (1, [1, 1, 1, 1, 1], 47_185_920, (2_066 / 81, 728 / 57)),
        (2, [3, 2], 23_592_960, (2_066 / 63, 1_456 / 57)),
        (4, [5], 16_625_664, (2_066 / 57, 2_066 / 57)),
        (8, [5], 16_625_664, (2_066 / 57, 2_066 / 57)),
    ],
)
def test_r02_a_wide_draft_costs_capacity(
    tp: int, native: list[int], isolated: int, claims: tuple[float, float], unpatched: Planner, patched: Planner
) -> None:
    case = report(f"r02-draft-page-tp-{tp}")
    packed, apart = plan(unpatched, case), plan(patched, case)
    assert page_bytes(case.specs[-1]) == 9 * 2**20 // tp
    assert [len(group.layers) for group in drafts(groups(packed))] == native
    assert block_bytes(packed) == 16_625_664
    assert [len(group.layers) for group in drafts(groups(apart))] == [5]
    assert block_bytes(apart) == isolated
    assert (concurrency(packed), concurrency(apart)) == claims


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_r02_pages_do_not_collide_at_any_tp(tp: int, either: Planner) -> None:
    case = report(f"r02-draft-page-tp-{tp}")
    assert placement_faults(case, plan(either, case)) == []


# Report 3: an indexer beside MLA layers, sharded or replicated.


def group_bytes(answer: Plan) -> list[int]:
    """Bytes of one block of each group, over all its layers."""
    return [group.page_bytes * (1 if group.is_wrapper else len(group.layers)) for group in groups(answer)]


def test_r03_sharded_indexers_are_charged_in_the_block_of_their_layers(either: Planner) -> None:
    assert block_bytes(plan(either, report("r03-sharded-indexer"))) == 898_560
    assert block_bytes(plan(either, report("r03-sharded-indexer-21"))) == 767_232


def test_r03_a_replicated_indexer_is_charged_for_all_tokens_of_the_span(either: Planner) -> None:
    answer = plan(either, report("r03-replicated-indexer"))
    assert [group.span_tokens for group in groups(answer)] == [128, 128]
    assert group_bytes(answer) == [718_848, 387_072]
    assert sum(group_bytes(answer)) == 1_105_920
    assert block_bytes(answer) == 718_848  # in vLLM a block id belongs to one group and costs the wider one


# Reports 4 and 5: recurrent state is never split, so its block table is not either.


@pytest.mark.parametrize(("dcp", "mla"), [(1, 1303), (16, 82)])
def test_r04_the_table_of_mamba_layers_has_1310_columns_at_every_dcp(dcp: int, mla: int, either: Planner) -> None:
    assert table_widths(plan(either, report(f"r04-mamba-width-dcp-{dcp}"))) == (1310, 1310, 1310, mla)


@pytest.mark.parametrize(("dcp", "mla"), [(1, 347), (4, 87)])
def test_r05_the_table_of_mamba_layers_has_354_columns_at_every_dcp(dcp: int, mla: int, either: Planner) -> None:
    assert table_widths(plan(either, report(f"r05-mamba-width-dcp-{dcp}"))) == (354, 354, 354, mla)


@pytest.mark.parametrize(("dcp", "columns"), [(1, 16_384), (2, 8_192)])
def test_r06_a_wrapper_and_its_members_ask_for_one_width(dcp: int, columns: int, either: Planner) -> None:
    answer = plan(either, report(f"r06-wrapper-width-dcp-{dcp}"))
    assert [group.is_wrapper for group in groups(answer)] == [True]
    assert answer.sizes is not None
    assert answer.sizes.widths == (columns,)
    assert answer.sizes.member_widths == ((columns,),)


# Report 30: a replicated draft does not depend on dcp.


@pytest.mark.parametrize("dcp", [1, 2, 4, 8, 16])
def test_r30_the_draft_is_planned_alike_at_every_dcp(dcp: int, either: Planner) -> None:
    answer = plan(either, report(f"r30-draft-at-dcp-{dcp}"))
    assert shapes(answer)[-1] == ("sliding_window", 5, 16, 16, 8_192)
    assert len(drafts(groups(answer))) == 1
    assert table_widths(answer)[-1] == 2_560
    assert request_blocks(answer)[-1] == 257


@pytest.mark.parametrize("dcp", [1, 2, 4, 8, 16])
def test_r30_native_planning_cuts_36_target_layers_to_the_width_of_five(dcp: int, unpatched: Planner) -> None:
    answer = plan(unpatched, report(f"r30-draft-at-dcp-{dcp}"))
    assert [len(group.layers) for group in groups(answer)] == [5, 5, 5, 5, 4, 4, 4, 4, 5]
    assert pools(answer)[0].num_blocks == 104_857


@pytest.mark.parametrize("dcp", [1, 2, 4, 8, 16])
def test_r30_isolate_leaves_the_target_whole(dcp: int, patched: Planner) -> None:
    answer = plan(patched, report(f"r30-draft-at-dcp-{dcp}"))
    assert [len(group.layers) for group in groups(answer)] == [36, 5]
    assert pools(answer)[0].num_blocks == 14_563
