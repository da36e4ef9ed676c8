"""``kvfuzz stats``: the counts of a seed, the reach in a planner, and how both are shown."""

from __future__ import annotations

import io

import msgspec
import pytest
from msgspec import structs
from rich.console import Console

from fuzz.planners.process import Planner
from fuzz.ratings import find_anomalies, rate_plans
from fuzz.report.plans import Planned as Answered
from fuzz.report.plans import as_json
from fuzz.stats import Stats, is_accepted, render_stats, run_stats
from oracles.case import case_id
from oracles.derived import with_a_layer_more
from oracles.plan import Plan, Planned, Refusal, Refused, Unsupported
from tests.oracles.models import FULL, WINDOW, model, right_plan, settings

CASES = 120


@pytest.fixture(scope="module")
def alone() -> Stats:
    return run_stats(CASES, 1)


@pytest.fixture(scope="module")
def asked(unpatched: Planner) -> Stats:
    return run_stats(CASES, 1, [unpatched])


def shown(stats: Stats) -> str:
    stream = io.StringIO()
    render_stats(stats, Console(file=stream, width=200))
    return stream.getvalue()


@pytest.mark.parametrize(
    "dimension", ["modes", "pages", "layout", "pipeline", "expected branch", "dcp", "layers", "specs", "speculative"]
)
def test_each_case_counts_once_in_a_dimension(alone: Stats, dimension: str) -> None:
    assert sum(alone.distributions[dimension].values()) == CASES


def test_the_most_frequent_value_comes_first(alone: Stats) -> None:
    for counts in alone.distributions.values():
        assert list(counts.values()) == sorted(counts.values(), reverse=True)


def test_the_same_seed_gives_the_same_stats(alone: Stats) -> None:
    again = run_stats(CASES, 1)
    assert msgspec.structs.replace(again, draw_seconds=alone.draw_seconds) == alone


def test_few_cases_leave_claims_unreached(alone: Stats) -> None:
    assert 0 < len(alone.missing) < alone.claimed


def test_without_a_planner_there_is_no_reach(alone: Stats) -> None:
    assert alone.planners == ()


def test_outcomes_add_up(asked: Stats) -> None:
    (reach,) = asked.planners
    assert sum(reach.outcomes.values()) == reach.cases == CASES


def test_branches_taken_and_unreached_add_up(asked: Stats) -> None:
    (reach,) = asked.planners
    assert reach.branches is not None
    taken, every = reach.branches
    assert taken + len(reach.unreached) == every
    assert taken > every // 2


def test_progress_is_told_up_to_the_last_case(unpatched: Planner) -> None:
    told: list[tuple[str, int]] = []
    run_stats(60, 2, [unpatched], progress=lambda address, done: told.append((address, done)))
    assert told == [("installed", 50), ("installed", 60)]


def test_plans_are_rated_by_objective(asked: Stats) -> None:
    (reach,) = asked.planners
    assert [row.name for row in reach.quality] == ["bytes per request", "content and padding"]
    for row in reach.quality:
        assert 1 <= row.median <= row.ninetieth <= row.worst
        assert len(row.worst_case) == 12


def test_a_layer_more_is_asked_of_one_case_in_four(asked: Stats) -> None:
    (reach,) = asked.planners
    assert 0 < reach.anomalies.asked <= CASES // 4
    assert reach.anomalies.found <= reach.anomalies.asked


def test_the_worst_plan_is_named() -> None:
    good, padded = model((FULL, 2), (WINDOW, 2)), model((FULL, 3), (WINDOW, 2))
    rows = rate_plans([good, padded], [Planned(plan=right_plan(case)) for case in (good, padded)])
    (row,) = (row for row in rows if row.name == "content and padding")
    assert (row.cases, row.median, row.ninetieth, row.worst, row.worst_case) == (2, 1.0, 1.2, 1.2, case_id(padded))


def test_a_layer_that_gives_capacity_is_an_anomaly() -> None:
    """Beside 3 full layers, 4 windows make all groups 4 wide, 5 windows 3 wide: by the rule of one and a half."""
    short = structs.replace(WINDOW, sliding_window=16)
    case = model((FULL, 3), (short, 4), under=settings(model_len=1024, batched_tokens=16))
    steady = model((FULL, 4))
    larger = [with_a_layer_more(one) for one in (case, steady)]
    found = find_anomalies(
        [case, steady], *([Planned(plan=right_plan(c)) for c in one] for one in ([case, steady], larger))
    )
    assert (found.asked, found.found, found.example) == (2, 1, case_id(case))


def test_a_plan_in_json_has_its_quality(unpatched: Planner) -> None:
    case = model((FULL, 3), (WINDOW, 2))
    hello = unpatched.hello()
    outcome = Planned(plan=right_plan(case))
    (shown,) = as_json(case, [Answered(address="a", revision="", hello=hello, outcome=outcome)])["planners"]
    quality = msgspec.to_builtins(shown["quality"])
    assert quality["padding_ratio"] == 1.2
    assert quality["plan"]["groups"] == 3
    assert quality["optimum"]["padding_bytes"] == 0


def test_stats_are_json(asked: Stats) -> None:
    assert msgspec.json.decode(msgspec.json.encode(asked), type=Stats) == asked


def test_the_tables_name_what_a_reader_looks_for(asked: Stats) -> None:
    text = shown(asked)
    for word in (
        "120 cases",
        "target kinds",
        "expected branch",
        "installed",
        "accepted as input",
        "branches of its",
        "content and padding",
        "one layer more",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("outcome", "accepted"),
    [
        (Planned(plan=Plan()), True),
        (Refused(refusals=(Refusal(stage="group", type="ValueError", message="no"),), plan=Plan()), True),
        (Refused(refusals=(Refusal(stage="input", type="ValueError", message="no"),), plan=Plan()), False),
        (Unsupported(field="replicated"), False),
    ],
)
def test_only_the_input_decides_whether_a_case_is_accepted(
    outcome: Planned | Refused | Unsupported, accepted: bool
) -> None:
    assert is_accepted(outcome) is accepted
