"""``kvfuzz stats``: the counts of a seed, the reach in a planner, and how both are shown."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from fuzz.planners.process import Planner
from fuzz.stats import Stats, is_accepted, render_stats, run_stats
from oracles.plan import Plan, Planned, Refusal, Refused, Unsupported

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


def test_stats_are_json(asked: Stats) -> None:
    assert msgspec.json.decode(msgspec.json.encode(asked), type=Stats) == asked


def test_the_tables_name_what_a_reader_looks_for(asked: Stats) -> None:
    text = shown(asked)
    for word in ("120 cases", "target kinds", "expected branch", "installed", "accepted as input", "branches of its"):
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
