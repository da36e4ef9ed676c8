"""Asks both planners cases that once mattered: FIXED, FAILED or ERROR for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.campaign import BATCH
from fuzz.campaign.events import GATED
from fuzz.known import KnownFindings
from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Judged, Pair, PlannerInfo
from oracles.case import Case, case_id
from oracles.compare import FAILING, Finding

Result = Literal["FIXED", "FAILED", "KNOWN", "ERROR"]


class Replayed(Struct, frozen=True, kw_only=True):
    """One case asked again. KNOWN: it fails, and known.toml says why."""

    id: str
    name: str
    result: Result
    verdict: str
    findings: tuple[Finding, ...]
    reason: str = ""


class ReplayReport(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz replay --json`` prints."""

    cases: tuple[Replayed, ...]
    counts: dict[str, int]
    gate: bool
    planners: tuple[PlannerInfo, ...]

    @property
    def failed(self) -> bool:
        """Whether a case failed; to a gate, one that shows a regression."""
        if self.gate:
            return any(one.result == "FAILED" and one.verdict in GATED for one in self.cases)
        return self.counts["FAILED"] > 0

    @property
    def errors(self) -> bool:
        """Whether a case could not be judged."""
        return self.counts["ERROR"] > 0


def replay_all(
    pair: Pair,
    cases: Iterable[tuple[str, Case]],
    known: KnownFindings,
    *,
    gate: bool = False,
    serves: Callable[[str], bool] = lambda _: False,
) -> ReplayReport:
    """Asks all cases in batches, with everything that can be asked of a case; requests are served of those whose name
    ``serves`` takes, since that costs as much as planning ten. Raises PlannerError.
    """
    done: list[Replayed] = []
    for serving, some in itertools.groupby(cases, key=lambda named: serves(named[0])):
        pair.serves = serving
        asking = FocusedPair(pair, None)
        for batch in _batches(some):
            pending = asking.submit([case for _, case in batch])
            for (name, _), judged in zip(batch, asking.collect(pending), strict=True):
                done.append(_result(name, judged, known))
    counts = {result: sum(one.result == result for one in done) for result in ("FIXED", "FAILED", "KNOWN", "ERROR")}
    return ReplayReport(cases=tuple(done), counts=counts, gate=gate, planners=pair.infos())


def _batches(cases: Iterable[tuple[str, Case]]) -> Iterator[list[tuple[str, Case]]]:
    source = iter(cases)
    while batch := list(itertools.islice(source, BATCH)):
        yield batch


def _result(name: str, judged: Judged, known: KnownFindings) -> Replayed:
    verdict = judged.verdict
    failing = [f for f in verdict.findings if f.verdict in FAILING]
    if any(not known.covers(f.fingerprint, f.verdict) for f in failing):
        result: Result = "FAILED"
    elif failing:
        result = "KNOWN"
    else:
        result = "ERROR" if verdict.name == "inconclusive" else "FIXED"
    return Replayed(
        id=case_id(judged.case), name=name, result=result, verdict=verdict.name, findings=verdict.findings,
        reason=verdict.reason,
    )  # fmt: skip


def show_replayed(report: ReplayReport, console: Console, *, details: bool) -> None:
    """A line per case; with ``details`` also what each planner broke."""
    colour = {"FIXED": "green", "FAILED": "bold red", "KNOWN": "yellow", "ERROR": "magenta"}
    for one in report.cases:
        console.print(f"[{colour[one.result]}]{one.result:<6}[/] {one.id} {escape(one.name)}", soft_wrap=True)
        for finding in one.findings:
            if not details and finding.verdict not in FAILING:
                continue
            console.print(
                f"       {finding.law} {finding.fingerprint} {finding.planner} ({finding.verdict}): "
                f"{escape(finding.summary)}",
                soft_wrap=True,
            )
        if one.reason:
            console.print(f"       {escape(one.reason)}")
    if len(report.cases) != 1:
        console.print(", ".join(f"{count} {result}" for result, count in report.counts.items()))
