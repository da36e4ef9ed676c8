"""How far the plans of many cases are from the best groupings of their layers: metrics, never findings.

The heuristics of a planner trade padding, bytes per request and the number of groups against each other (DESIGN 5,
*Quality*). A rating is a ratio to the optimum of one case; an anomaly a case in which more layers fit better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table

from oracles.case import Case, case_id
from oracles.plan import Outcome, plan_of
from oracles.quality import assess


class Objective(Struct, frozen=True, kw_only=True):
    """How far plans are from the optimum in one respect: ratios over ``cases`` plans, 1 being best.

    ``median`` and ``ninetieth`` are by nearest rank; ``worst_case`` is the id of the case of the ``worst`` ratio.
    """

    name: str
    cases: int
    median: float
    ninetieth: float
    worst: float
    worst_case: str


class Anomalies(Struct, frozen=True, kw_only=True):
    """Of ``asked`` cases, in how many one layer more gives more capacity in the same memory; one case's id."""

    asked: int
    found: int
    example: str


def rate_plans(drawn: Sequence[Case], outcomes: Sequence[Outcome]) -> tuple[Objective, ...]:
    """The ratios of plans to the optimum, by objective; plans whose optimum is out of reach are left out."""
    rated = [
        (case_id(case), found)
        for case, outcome in zip(drawn, outcomes, strict=True)
        if (plan := plan_of(outcome)) is not None and (found := assess(case, plan)) is not None
    ]
    ratios = {
        "bytes per request": [(found.request_ratio, name) for name, found in rated],
        "content and padding": [(found.padding_ratio, name) for name, found in rated],
    }
    return tuple(
        _objective(name, sorted((ratio, case) for ratio, case in pairs if ratio is not None))
        for name, pairs in ratios.items()
        if any(ratio is not None for ratio, _ in pairs)
    )


def _objective(name: str, ordered: list[tuple[float, str]]) -> Objective:
    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)][0]

    worst, example = ordered[-1]
    return Objective(
        name=name, cases=len(ordered), median=rank(0.5), ninetieth=rank(0.9), worst=worst, worst_case=example
    )


def find_anomalies(drawn: Sequence[Case], outcomes: Sequence[Outcome], larger: Sequence[Outcome | None]) -> Anomalies:
    """Cases in which a layer more gives more tokens of the same model length."""
    asked, found = 0, []
    for case, outcome, other in zip(drawn, outcomes, larger, strict=True):
        before, after = plan_of(outcome), plan_of(other) if other is not None else None
        if before is None or after is None or before.capacity is None or after.capacity is None:
            continue
        asked += 1
        same = before.capacity.model_len == after.capacity.model_len
        if same and after.capacity.tokens > before.capacity.tokens:
            found.append(case_id(case))
    return Anomalies(asked=asked, found=len(found), example=next(iter(found), ""))


def show_ratings(quality: Sequence[Objective], odd: Anomalies, console: Console) -> None:
    """How far the plans are from the best groupings of the same layers: no finding, but what a heuristic costs."""
    if quality:
        table = Table(
            "quality: over the least", "plans", "median", "90 %", "worst", "case", box=box.SIMPLE, pad_edge=False
        )
        for row in quality:
            table.add_row(
                row.name, f"{row.cases:,}", f"{row.median:.2f} ×", f"{row.ninetieth:.2f} ×", f"{row.worst:.2f} ×",
                row.worst_case,
            )  # fmt: skip
        console.print(table)
    example = f", as in {odd.example}" if odd.example else ""
    console.print(f"one layer more gives more capacity in {odd.found:,} of {odd.asked:,} cases{example}")
