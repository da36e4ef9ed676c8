"""Replay of a model's plans: real allocations, the large ones touched where they are painted only."""

from __future__ import annotations

import pytest
from msgspec import structs

from fuzz.harvest.painting import LARGEST_BYTES, Painted, PoolReplay, breaches_of, paint_plans, painted_words
from oracles.case import Case, Worker
from oracles.plan import Plan, Planned, Refusal, Refused
from tests.oracles.models import FULL, WINDOW, model, right_plan, settings, with_records


def large(layout: str = "BLNHC", gib: int = 64) -> Case:
    under = settings(layout=layout)
    return model((FULL, 3), (WINDOW, 2), under=structs.replace(under, workers=(Worker(memory=gib * 2**30),)))


@pytest.mark.parametrize("layout", ["BLNHC", "LBNHC"])
def test_a_large_plan_is_painted_in_as_many_blocks_as_may_be_allocated_and_in_a_few(layout: str) -> None:
    case = large(layout)
    (painted,) = paint_plans([(case, Planned(plan=right_plan(case)))])
    first, second = painted.pools
    assert (first.mode, second.mode) == ("sparse", "exact")
    assert 0.9 * LARGEST_BYTES < first.pool_bytes <= LARGEST_BYTES < first.planned_bytes
    assert [pool.result for pool in painted.pools] == ["clean", "clean"]
    assert breaches_of(case, painted) == ()
    assert painted_words([painted]) == (
        "2 pools painted on the CPU and read back; the largest of 8.0 GiB for the 64.0 planned; "
        "every page kept its bytes"
    )


def test_a_plan_of_less_is_painted_as_planned() -> None:
    case = large(gib=2)
    (painted,) = paint_plans([(case, Planned(plan=right_plan(case)))])
    assert painted.pools[0].pool_bytes == painted.pools[0].planned_bytes
    assert "the largest of 2.0 GiB; every" in painted_words([painted])


def test_equal_plans_are_painted_once() -> None:
    case = large(gib=1)
    outcome = Planned(plan=right_plan(case))
    first, second = paint_plans([(case, outcome), (case, outcome)])
    assert first is second
    assert painted_words([first]).startswith("2 pools painted")


def test_pages_that_meet_are_found_and_named() -> None:
    case = large(gib=2)
    wrong = with_records(
        right_plan(case), lambda at, one: structs.replace(one, layer_stride=one.layer_stride - 16) if not at else one
    )
    (painted,) = paint_plans([(case, Planned(plan=wrong))])
    (breach,) = breaches_of(case, painted)
    assert (breach.law, breach.path) == ("P3", "placement[].overlap.group")
    assert painted_words([painted]).endswith("broken: P3")


def test_what_is_refused_is_not_replayed() -> None:
    refused = Refused(refusals=(Refusal(stage="place", type="ValueError", message="too little"),), plan=Plan())
    (painted,) = paint_plans([(large(), refused)])
    assert painted == Painted(skipped="no pool is planned")
    assert painted_words([painted]) == "not replayed: no pool is planned"


def test_a_dead_process_is_a_breach() -> None:
    pool = PoolReplay(worker=1, pool_bytes=1, num_blocks=1, planned_bytes=1, result="died", reason="exit -7")
    (breach,) = breaches_of(large(), Painted(pools=(pool,)))
    assert (breach.law, breach.error) == ("alive", "died")
    assert "died: exit -7" in painted_words([Painted(pools=(pool,))])
