"""Asks both planners cases that once mattered: FIXED, FAILED or ERROR for each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Literal

from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.campaign import BATCH
from fuzz.campaign.events import gated
from fuzz.known import KnownFindings
from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Judged, Pair, PlannerInfo
from fuzz.planners.process import Planner
from fuzz.replay import device as script
from fuzz.replay.memory.pools import handed_over
from fuzz.replay.memory.select import interesting, planned_pools
from oracles.case import Case, case_id
from oracles.compare import FAILING, Finding

CAP_GIB = 8.0
"""Larger pools are skipped on a device; each large plan is painted once more with few blocks."""

Result = Literal["FIXED", "FAILED", "KNOWN", "ERROR"]


class Replayed(Struct, frozen=True, kw_only=True):
    """One case asked again. KNOWN: it fails, and known.toml says why."""

    id: str
    name: str
    result: Result
    verdict: str
    findings: tuple[Finding, ...]
    reason: str = ""

    @property
    def failing(self) -> list[Finding]:
        """What a case failed for; nothing where it did not."""
        return [f for f in self.findings if f.verdict in FAILING] if self.result == "FAILED" else []


class Painted(Struct, frozen=True, kw_only=True):
    """What a device made of pools. ``skipped`` counts those that it did not paint, and ``reason`` says why for the
    first; ``unexpected`` are the pools that it found broken though their case breaks no law.
    """

    device: str
    pools: int
    clean: int
    broken: int
    skipped: int
    reason: str
    unexpected: tuple[str, ...]
    seconds: float


class ReplayReport(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz replay --json`` prints. ``device`` is None where no device was asked for; ``minded`` are the
    fingerprints of what a gate fails for.
    """

    cases: tuple[Replayed, ...]
    counts: dict[str, int]
    gate: bool
    planners: tuple[PlannerInfo, ...]
    device: Painted | None = None
    minded: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a case failed, or a device found what no law did; to a gate, one that shows a regression."""
        if self.device is not None and self.device.unexpected:
            return True
        if self.gate:
            return bool(self.minded)
        return self.counts["FAILED"] > 0

    @property
    def errors(self) -> bool:
        """Whether a case could not be judged. A gate asks what it can, and minds only that nothing could be."""
        if self.gate:
            return 0 < len(self.cases) == self.counts["ERROR"]
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
    found = [finding for one in done for finding in one.findings]
    minded = (f.fingerprint for f in gated(found) if not known.covers(f.fingerprint, f.verdict))
    return ReplayReport(
        cases=tuple(done), counts=counts, gate=gate, planners=pair.infos(), minded=tuple(dict.fromkeys(minded))
    )


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
        name = "" if one.name == one.id else f" {escape(one.name)}"
        console.print(f"[{colour[one.result]}]{one.result:<6}[/] {one.id}{name}", soft_wrap=True)
        for finding in one.findings:
            if not details and finding.verdict not in FAILING:
                continue
            console.print(
                f"       {finding.law} {finding.fingerprint} {finding.planner} ({finding.verdict}): "
                f"{escape(finding.sentence)}",
                soft_wrap=True,
            )
        if one.reason:
            console.print(f"       {escape(one.reason)}")
    if details:
        asked = ", ".join(f"{one.role} {one.address}" for one in report.planners)
        console.print(f"       [dim]asked: {escape(asked)}[/]", soft_wrap=True)
    for planner in report.planners:
        if planner.rules:
            console.print(f"{planner.role} {escape(planner.address)}: {planner.rules}", soft_wrap=True)
    if len(report.cases) != 1:
        console.print(", ".join(f"{count} {result}" for result, count in report.counts.items()))


def paint_on_device(
    planner: Planner, cases: Iterable[Case], clean: Collection[str], device: str, budget: float
) -> Painted:
    """Allocates and paints the pools of ``planner``'s plans, in child processes, for at most ``budget`` seconds: one
    plan for each feature tuple, smallest first. ``clean`` are the ids of the cases that break no law.

    Raises:
        PlannerError: the planner cannot be started again.
    """
    chosen = interesting(cases)
    pools = handed_over(planned_pools(planner, chosen, len(chosen)))
    *results, last = script.replay(pools, device, CAP_GIB, budget)
    counts = Counter(one["result"] for one in results)
    failing = [one for one in results if one["result"] in script.FAILING]
    reasons = (one["reason"] for one in results if one["result"] == "skipped")
    return Painted(
        device=device, pools=len(results), clean=counts["clean"], broken=len(failing), skipped=counts["skipped"],
        reason=next(reasons, ""), seconds=last["summary"]["seconds"],
        unexpected=tuple(
            f"{one['id']} worker {one['worker']}: {one['result']}"
            for one in failing
            if one["id"] in clean or one["result"] != "broken"
        ),
    )  # fmt: skip


def show_painted(painted: Painted, console: Console) -> None:
    """What the device found, in a few lines."""
    if not painted.pools:
        console.print(f"on {painted.device}: no plan has a pool to paint")
        return
    for line in painted.unexpected:
        console.print(f"[bold red]unexpected[/] {escape(line)}", soft_wrap=True)
    console.print(
        f"on {painted.device}: {painted.clean} of {painted.pools} pools clean, {painted.broken} broken "
        f"({len(painted.unexpected)} of them not by a law), {painted.seconds:g} s", soft_wrap=True,
    )  # fmt: skip
    if painted.skipped:
        console.print(f"skipped: {escape(painted.reason)} ({painted.skipped} pools)", soft_wrap=True)
