"""The cost of groupings, and the least that any would cost."""

from __future__ import annotations

import pytest
from msgspec import structs

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from oracles.case import Case, Worker
from oracles.plan import Group, Plan, Planned
from oracles.quality import Optimum, Quality, assess, measure, optimum
from oracles.reference import RULE_SETS, expected_plan
from tests.oracles.models import FULL, STATE, WINDOW, model, right_plan, settings

SMALL = settings(model_len=1024, batched_tokens=1024)
"""A full layer bills 64 blocks, a window's 65."""


def test_cost_of_two_equal_groups() -> None:
    case = model((FULL, 2), (WINDOW, 2), under=SMALL)
    assert measure(case, right_plan(case)) == Quality(
        groups=2, block_bytes=131_072, padding_bytes=0, request_bytes=131_072 * (64 + 65)
    )


def test_a_narrow_group_is_billed_at_full_width() -> None:
    case = model((FULL, 3), (WINDOW, 2), under=SMALL)
    found = measure(case, right_plan(case))
    assert found is not None
    assert (found.groups, found.padding_bytes) == (3, 65_536)


def test_the_optimum_may_have_more_groups_than_the_plan() -> None:
    """Seven windows beside six full layers: one group each wastes a page a block, single layers waste none."""
    case = model((FULL, 4), (WINDOW, 5), under=SMALL)
    plan = right_plan(case)
    found = measure(case, plan)
    assert found is not None
    assert (found.groups, found.padding_bytes) == (2, 65_536)
    assert optimum(case, plan) == Optimum(
        padding_bytes=0,
        request_bytes=65_536 * (4 * 64 + 5 * 65),
        front=((2, 327_680 * (64 + 65)), (9, 65_536 * (4 * 64 + 5 * 65))),
    )


def test_the_optimum_is_never_above_the_plan() -> None:
    for full, window, state in ((1, 9, 0), (2, 5, 3), (3, 3, 4), (7, 2, 1)):
        case = model((FULL, full), (WINDOW, window), (STATE, state), under=settings(layout="BLHNC", mamba_mode="align"))
        plan = right_plan(case)
        found, best = measure(case, plan), optimum(case, plan)
        assert found is not None
        assert best is not None
        assert best.request_bytes <= found.request_bytes
        assert best.padding_bytes <= found.padding_bytes


def test_mixed_pages_are_grouped_by_sum() -> None:
    """Pages of 3, 2, 2 and 1 units in two groups: 4 and 4."""
    unit = structs.replace(FULL, num_kv_heads=1)
    case = model(
        *((structs.replace(unit, num_kv_heads=heads), 1) for heads in (3, 2, 2, 1)), (WINDOW, 1),
        under=settings(layout="BLHNC", model_len=1024, batched_tokens=1024),
    )  # fmt: skip
    best = optimum(case, right_plan(case))
    assert best == Optimum(padding_bytes=0, request_bytes=65_536 * (64 + 65), front=((2, 65_536 * (64 + 65)),))


def test_large_models_of_equal_pages_have_an_optimum() -> None:
    roomy = structs.replace(SMALL, workers=(Worker(memory=2**40),))
    case = model((FULL, 300), (WINDOW, 500), under=roomy)
    best = optimum(case, right_plan(case))
    assert best is not None
    assert best.request_bytes == 65_536 * (300 * 64 + 500 * 65)


def test_eleven_layers_of_different_pages_are_too_many() -> None:
    case = model((FULL, 10), (structs.replace(FULL, num_kv_heads=1), 1), under=settings(layout="BLHNC"))
    assert optimum(case, right_plan(case)) is None
    found = assess(case, right_plan(case))
    assert found is not None
    assert (found.optimum, found.request_ratio, found.padding_ratio) == (None, None, None)


def test_a_rating_is_the_cost_over_the_least() -> None:
    """Three full layers and two windows in groups of 2, 1 and 2: six places for five layers."""
    case = model((FULL, 3), (WINDOW, 2), under=SMALL)
    found = assess(case, right_plan(case))
    assert found is not None
    assert found.padding_ratio == 1.2
    assert found.request_ratio == round(2 * (2 * 64 + 65) / (3 * 64 + 2 * 65), 4)


def test_a_plan_without_groups_is_not_rated() -> None:
    assert assess(model(), right_plan(model())) is None


# Public reports whose point is quality


def report(name: str) -> Case:
    return read_case(corpus_folder() / "reports" / f"{name}.json")


def planned(case: Case) -> Plan:
    outcome = expected_plan(case, RULE_SETS["0.32"], "native")
    assert isinstance(outcome, Planned)
    return outcome.plan


def dealt(case: Case, widths: dict[int, list[int]]) -> Plan:
    """A plan of ``case`` with groups of these numbers of layers, for each spec of the case."""
    groups = []
    for at, counts in widths.items():
        names = [layer.name for layer in case.layers if layer.spec == at]
        assert len(names) == sum(counts)
        for count in counts:
            mine, names = tuple(names[:count]), names[count:]
            groups.append(Group(layers=mine, block_size=1, page_bytes=1, span_tokens=1, kind="", members=(at,) * count))
    return Plan(specs=case.specs, groups=tuple(groups))


def test_r07_a_draft_raises_the_padding_from_3_to_22_percent() -> None:
    alone, drafted = (assess(case := report(name), planned(case)) for name in ("r07-without-draft", "r07-with-draft"))
    assert alone is not None
    assert drafted is not None
    assert (alone.padding_ratio, drafted.padding_ratio) == (1.0323, 1.1837)
    assert (alone.plan.padding_bytes, drafted.plan.padding_bytes) == (3 * 442_368, 18 * 442_368)


def test_r08_five_groups_would_do_for_a_sixth_more_bytes_than_46() -> None:
    case = report("r08-one-odd-full-layer")
    found = assess(case, planned(case))
    assert found is not None
    assert found.optimum is not None
    assert found.plan.groups == 46
    front = dict(found.optimum.front)
    assert front == {
        3: 1_390_018_560, 4: 696_975_360, 5: 512_557_056, 8: 482_476_032, 46: 436_273_152,
    }  # fmt: skip
    assert front[46] == found.plan.request_bytes


def test_r09_eight_padding_layers_cost_two_fifths_more_than_needed() -> None:
    case = report("r09-draft-of-eight")
    found = assess(case, planned(case))
    assert found is not None
    assert found.plan.padding_bytes == 8 * 65_536
    assert found.request_ratio == 1.4251


def test_r16_a_hidden_state_billed_at_full_width_costs_twenty_times_the_least() -> None:
    case = report("r16-hidden-state-beside-wide-group")
    found = assess(case, planned(case))
    assert found is not None
    assert found.request_ratio == 21.2754


def test_r26_separating_one_draft_layer_costs_groups_and_no_bytes() -> None:
    apart, together = (
        assess(case := report(name), planned(case))
        for name in ("r26-one-window-draft-layer", "r26-one-equal-draft-layer")
    )
    assert apart is not None
    assert together is not None
    assert (apart.plan.groups, together.plan.groups) == (49, 4)
    assert (apart.request_ratio, together.request_ratio) == (1.0, 1.0009)


def test_r27_the_optimum_is_the_second_grouping() -> None:
    """Groups of 9, 9, 8, 8 and 11 layers against seven of 5 or 4 and one of 11; reported as 1.57 times the bytes."""
    case = report("r27-native-pages")
    first, second = (
        assess(case, dealt(case, widths))
        for widths in ({0: [9, 9, 8, 8], 1: [11]}, {0: [5, 5, 5, 5, 5, 5, 4], 1: [11]})
    )
    assert first is not None
    assert second is not None
    assert (first.plan.request_bytes, second.plan.request_bytes) == (1_840_250_880, 1_180_422_144)
    assert (first.request_ratio, second.request_ratio) == (1.559, 1.0)
    assert second.optimum is not None
    assert second.optimum.front[-1] == (8, 1_180_422_144)


@pytest.mark.parametrize("name", ["r27-native-pages", "r07-with-draft"])
def test_the_whole_search_of_a_report_is_quick(name: str) -> None:
    """No grouping of the 45 and 98 layers is enumerated: the front has as many entries as there are widths at most."""
    case = report(name)
    best = optimum(case, planned(case))
    assert best is not None
    assert len(best.front) <= len(case.layers)
