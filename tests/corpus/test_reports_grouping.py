"""Reports 7 to 11, 16, 26, 27 and 31: how many layers share a block table, and what that wastes.

Padding, group counts and bytes per request are quality, not correctness: the values are what 0.32.0 does.
"""

from __future__ import annotations

import pytest

from fuzz.planners.process import Planner
from oracles.plan import Plan
from tests.corpus.asking import (
    block_bytes,
    concurrency,
    groups,
    padding_layers,
    placement_faults,
    plan,
    report,
    request_blocks,
    shapes,
    widths,
)


def request_bytes(answer: Plan) -> int:
    """Bytes of the pool that one request of the model length takes."""
    return sum(request_blocks(answer)) * block_bytes(answer)


def mixed_owners(answer: Plan) -> list[tuple[str, ...]]:
    """Groups that hold layers of the target and of the draft."""
    return [group.layers for group in groups(answer) if len({name.startswith("draft") for name in group.layers}) > 1]


def test_r07_three_padding_layers_without_a_draft(either: Planner) -> None:
    answer = plan(either, report("r07-without-draft"))
    assert widths(answer) == [23, 23, 23, 24]
    assert padding_layers(answer) == 3  # 4 % of 69


def test_r07_a_draft_equal_to_the_target_raises_the_padding_to_18_layers(either: Planner) -> None:
    answer = plan(either, report("r07-with-draft"))
    assert widths(answer) == [23, 23, 23, 29]
    assert padding_layers(answer) == 18  # 26 % of 69


def test_r07_a_replicated_draft_sets_the_width_of_native_groups(unpatched: Planner) -> None:
    answer = plan(unpatched, report("r07-with-replicated-draft"))
    assert widths(answer) == [*13 * [5], 4, *4 * [5], 4, 5]
    assert padding_layers(answer) == 2
    assert concurrency(answer) == 7_767 / 54


def test_r07_isolate_keeps_the_target_and_bills_the_draft_at_its_width(patched: Planner) -> None:
    answer = plan(patched, report("r07-with-replicated-draft"))
    assert widths(answer) == [23, 23, 23, 24, 5]
    assert padding_layers(answer) == 22
    assert concurrency(answer) == 1_618 / 20


def test_r08_one_odd_layer_makes_46_groups_of_one(either: Planner) -> None:
    answer = plan(either, report("r08-one-odd-full-layer"))
    assert widths(answer) == 46 * [1]  # the optimum is about ten groups
    assert request_bytes(answer) == (30 * 2 + 11 * 512 + 5 * 193) * 65_536


def test_r09_two_and_six_padding_layers(either: Planner) -> None:
    answer = plan(either, report("r09-draft-of-eight"))
    assert widths(answer) == [8, 8, 7, 7, 5, 5, 8]
    assert padding_layers(answer) == 2 + 6
    assert mixed_owners(answer) == []


@pytest.mark.parametrize(
    ("full", "window", "expected"),
    [
        (19, 18, [19, 18]),
        (13, 12, [13, 12]),
        (14, 12, [14, 12]),
        (15, 12, [15, 12]),  # a ratio of 1.25, where an earlier rule ended
        (16, 12, [16, 12]),
        (17, 12, [17, 12]),
        (18, 12, [9, 9, 12]),  # 1.5: the rule asks for less
        (19, 12, [10, 9, 12]),
    ],
)
def test_r10_the_larger_kind_sets_the_width_below_a_ratio_of_one_and_a_half(
    full: int, window: int, expected: list[int], either: Planner
) -> None:
    assert widths(plan(either, report(f"r10-full-{full}-window-{window}"))) == expected


def test_r11_chunked_layers_make_three_groups_beside_the_full_ones(either: Planner) -> None:
    assert shapes(plan(either, report("r11-chunked"))) == (
        *3 * (("chunked_local", 12, 16, 16, 8_192),),
        ("full", 12, 16, 16, 8_192),
    )


def test_r16_a_hidden_state_layer_is_billed_at_the_full_width(either: Planner) -> None:
    answer = plan(either, report("r16-hidden-state-beside-wide-group"))
    assert shapes(answer)[-1] == ("hidden_state", 1, 4, 4, 442_368)
    assert widths(answer) == [23, 23, 23, 24, 1]
    assert block_bytes(answer) == 24 * 442_368
    assert request_blocks(answer) == (2, 2, 2, 86, 16_384)
    own, billed = 16_384 * 442_368, 16_384 * 24 * 442_368
    assert (own / 2**30, billed / 2**30) == (6.75, 162.0)


def test_r16_bytes_are_the_reported_ones_for_the_reported_block_of_five_tokens() -> None:
    blocks = -(-65_536 // 5)
    own, billed = blocks * 442_368, blocks * 24 * 442_368
    assert (round(own / 2**30, 2), round(billed / 2**30, 2)) == (5.4, 129.61)


@pytest.mark.parametrize(
    "name", ["r26-one-window-draft-layer", "r26-one-equal-draft-layer", "r26-one-replicated-window-draft-layer"]
)
def test_r26_draft_and_target_share_a_group_only_if_their_specs_are_equal(name: str, either: Planner) -> None:
    case = report(name)
    specs = {layer.name: layer.spec for layer in case.layers}
    for group in groups(plan(either, case)):
        assert len({specs[layer] for layer in group.layers}) == 1


def test_r26_one_draft_layer_of_another_spec_makes_49_groups_of_one(either: Planner) -> None:
    answer = plan(either, report("r26-one-window-draft-layer"))
    assert widths(answer) == 49 * [1]
    assert request_bytes(answer) == (36 * 2 + 12 * 512 + 257) * 65_536


def test_r26_one_draft_layer_of_an_equal_spec_joins_the_target(either: Planner) -> None:
    answer = plan(either, report("r26-one-equal-draft-layer"))
    assert widths(answer) == [12, 12, 12, 13]
    assert len(mixed_owners(answer)) == 1


def test_r26_separating_the_draft_costs_capacity(unpatched: Planner, patched: Planner) -> None:
    case = report("r26-one-replicated-window-draft-layer")
    native, isolated = plan(unpatched, case), plan(patched, case)
    assert widths(native) == 49 * [1]
    assert widths(isolated) == [12, 12, 12, 12, 1]
    assert request_bytes(native) == (36 * 2 + 12 * 128 + 257) * 65_536
    assert request_bytes(isolated) == (3 * 2 + 128 + 257) * 12 * 65_536


def test_r27_one_page_size_makes_groups_as_wide_as_the_mla_layers(either: Planner) -> None:
    answer = plan(either, report("r27-one-page-size"))
    assert widths(answer) == [9, 9, 8, 8, 11]
    assert request_bytes(answer) == (4 * 2 + 27) * 35_098_624  # 1,228,451,840


def test_r27_native_pages_make_groups_as_wide_as_the_bytes_allow(either: Planner) -> None:
    case = report("r27-native-pages")
    answer = plan(either, case)
    assert widths(answer) == [5, 5, 5, 5, 5, 5, 4, 11]
    assert request_bytes(answer) == (7 * 2 + 57) * 16_625_664  # 1,180,422,144
    assert placement_faults(case, answer) == []


@pytest.mark.parametrize("name", ["r31-equal-pages", "r31-equal-pages.block-outer"])
def test_r31_equal_pages_take_the_plain_path(name: str, either: Planner) -> None:
    answer = plan(either, report(name))
    assert shapes(answer) == (*2 * (("mla", 1, 16, 16, 36_864),), ("sliding_window_mla", 1, 16, 16, 36_864))
    assert not any(group.is_wrapper for group in groups(answer))
