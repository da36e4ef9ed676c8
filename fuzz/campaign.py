"""A campaign: cases in, findings out, one typed event a step. Knows no report.

The corpus is asked first, so that every run meets the cases that once mattered; then cases are drawn from a seed
until the time or the count is reached. Batches are pipelined: while both planners work on one, the next is drawn
and the last is judged.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct, structs

from fuzz.known import Known, KnownFindings
from fuzz.pair import Judged, Pair, Pending, PlannerInfo
from fuzz.store import Store
from fuzz.strategies import Shape, draw_case, vocabulary_of
from fuzz.twins import Twins
from oracles.case import Case, canonical, case_id
from oracles.compare import FAILING, VERDICTS, Finding
from oracles.law import Contract

BATCH = 24
"""Cases per batch: about 0.1 s of planning, so that the display moves and a deadline stops in time."""

IN_FLIGHT = 3
"""Batches queued at the planners; with fewer a planner waits for the judge."""


class Witness(Struct, frozen=True, kw_only=True):
    """The smallest case seen so far for one fingerprint."""

    id: str
    fingerprint: str
    law: str
    verdict: str
    planner: str
    summary: str
    first_difference: str
    case: str
    layers: int
    seen: int = 1
    known: bool = False


class Started(Struct, frozen=True, kw_only=True):
    """Both planners are up."""

    planners: tuple[PlannerInfo, ...]
    contract: Contract
    seed: int


class Progressed(Struct, frozen=True, kw_only=True):
    """A batch was judged; all numbers are totals."""

    cases: int
    seconds: float
    verdicts: dict[str, int]
    planner_seconds: float
    distinct: int


class Found(Struct, frozen=True, kw_only=True):
    """A fingerprint was seen for the first time."""

    witness: Witness


class Report(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz run --json`` prints."""

    contract: Contract
    seed: int
    cases: int
    corpus_cases: int
    seconds: float
    cases_per_second: float
    planner_seconds: float
    verdicts: dict[str, int]
    inconclusive: dict[str, int]
    planned_under_other_hash_seeds: int
    findings: tuple[Witness, ...]
    known: tuple[Known, ...]
    planners: tuple[PlannerInfo, ...]

    @property
    def failed(self) -> bool:
        """Whether a finding that is not known needs someone's attention."""
        return any(f.verdict in FAILING and not f.known for f in self.findings)


class Finished(Struct, frozen=True, kw_only=True):
    """The run is over."""

    report: Report


Event = Started | Progressed | Found | Finished


class Plan(Struct, frozen=True, kw_only=True):
    """How long to run and on what: the seed, a time in seconds, a number of drawn cases, the corpus, and whether
    a sample is planned again under other hash seeds.
    """

    seed: int
    seconds: float | None = None
    cases: int | None = None
    corpus: tuple[Case, ...] = ()
    twins: bool = True


def drawn(seed: int, shape: Shape) -> Iterator[Case]:
    """Endless cases from a seed; the same on every machine for planners that know the same."""
    for number in itertools.count():
        # One generator a case, so that case N does not depend on what the cases before it consumed.
        yield draw_case(random.Random(f"kvfuzz {seed} {number}"), shape)


def run(pair: Pair, plan: Plan, store: Store, known: KnownFindings) -> Iterator[Event]:
    """Runs a campaign. Raises PlannerError when a planner cannot be started or restarted."""
    shape = Shape(vocabulary=vocabulary_of(*pair.start()))
    planners = pair.infos()
    yield Started(planners=planners, contract=pair.contract, seed=plan.seed)
    ledger = Ledger(pair, store, known)
    twins = Twins(pair) if plan.twins else None
    begun = time.monotonic()
    stop_at = begun + plan.seconds if plan.seconds is not None else None
    count = plan.cases if plan.cases is not None else (0 if stop_at is None else None)
    source = itertools.chain(plan.corpus, itertools.islice(drawn(plan.seed, shape), count))
    try:
        for batch in _pipelined(pair, source, stop_at):
            yield from ledger.note(batch)
            if twins is not None:
                twins.sample(batch)
                yield from _note_twins(ledger, twins, wait=False)
            yield ledger.progress(time.monotonic() - begun)
        seconds = time.monotonic() - begun
        if twins is not None:
            yield from _note_twins(ledger, twins, wait=True)
        yield Finished(report=ledger.report(plan, planners, seconds, twins.compared if twins else 0))
    finally:
        if twins is not None:
            twins.close()


def _note_twins(ledger: Ledger, twins: Twins, *, wait: bool) -> Iterator[Found]:
    for case, findings in twins.answered(wait=wait):
        yield from ledger.note_findings(case, findings)


def _pipelined(pair: Pair, source: Iterable[Case], stop_at: float | None) -> Iterator[list[Judged]]:
    """Judged batches, in order; drawing stops at ``stop_at`` and what is in flight is judged all the same."""
    cases = iter(source)
    queue: deque[Pending] = deque()
    while True:
        while len(queue) < IN_FLIGHT and (stop_at is None or time.monotonic() < stop_at):
            batch = list(itertools.islice(cases, BATCH))
            if not batch:
                break
            queue.append(pair.submit(batch))
        if not queue:
            return
        yield list(pair.collect(queue.popleft()))


Size = tuple[int, int, bytes]
"""Shortlex order on cases: layers, then length of the canonical form, then the form itself."""


class Ledger:
    """Counts verdicts and keeps the smallest witness of each fingerprint."""

    def __init__(self, pair: Pair, store: Store, known: KnownFindings) -> None:
        self._pair, self._store, self._known = pair, store, known
        self._cases = 0
        self._planner_seconds = 0.0
        self._verdicts: Counter[str] = Counter(dict.fromkeys(VERDICTS, 0))
        self._reasons: Counter[str] = Counter()
        self._witnesses: dict[str, Witness] = {}
        self._sizes: dict[str, Size] = {}

    def note(self, batch: list[Judged]) -> Iterator[Found]:
        """Takes in a batch; yields fingerprints not seen before."""
        for judged in batch:
            self._cases += 1
            self._planner_seconds += judged.planner_seconds
            self._verdicts[judged.verdict.name] += 1
            if judged.verdict.reason:
                self._reasons[judged.verdict.reason] += 1
            yield from self.note_findings(judged.case, judged.verdict.findings)

    def note_findings(self, case: Case, findings: Iterable[Finding]) -> Iterator[Found]:
        """Takes in the findings of one case; yields those whose fingerprint was not seen before."""
        for finding in findings:
            # One fault can be told apart by verdict too: fixed here, unfixed there.
            key = f"{finding.fingerprint}:{finding.verdict}"
            text = canonical(case)
            size = len(case.layers), len(text), text
            held = self._witnesses.get(key)
            if held is None:
                yield Found(witness=self._keep(key, case, finding, size, seen=1))
            elif size < self._sizes[key]:
                kept = self._keep(key, case, finding, size, seen=held.seen + 1)
                if held.id != kept.id:
                    self._store.drop_finding(held.id, held.fingerprint)
            else:
                self._witnesses[key] = structs.replace(held, seen=held.seen + 1)

    def _keep(self, key: str, case: Case, finding: Finding, size: Size, *, seen: int) -> Witness:
        pair = self._pair
        self._store.keep_finding(case, finding, pair.contract, pair.unpatched.address, pair.patched.address)
        identity = case_id(case)
        self._sizes[key] = size
        witness = Witness(
            id=identity, fingerprint=finding.fingerprint, law=finding.law, verdict=finding.verdict,
            planner=finding.planner, summary=finding.summary, first_difference=finding.first_difference,
            case=str(Path(self._store.case_path(identity))), layers=len(case.layers), seen=seen,
            known=self._known.covers(finding.fingerprint, finding.verdict),
        )  # fmt: skip
        self._witnesses[key] = witness
        return witness

    def progress(self, seconds: float) -> Progressed:
        """Totals so far."""
        return Progressed(
            cases=self._cases, seconds=seconds, verdicts=dict(self._verdicts),
            planner_seconds=self._planner_seconds, distinct=len(self._witnesses),
        )  # fmt: skip

    def report(self, plan: Plan, planners: tuple[PlannerInfo, ...], seconds: float, compared: int) -> Report:
        """The whole run; findings that need attention first, then by how often they were seen."""
        rank = {name: place for place, name in enumerate(("regression", "dispute", "unfixed", "fixed"))}
        findings = sorted(self._witnesses.values(), key=lambda w: (w.known, rank[w.verdict], -w.seen, w.fingerprint))
        return Report(
            contract=self._pair.contract,
            seed=plan.seed,
            cases=self._cases,
            corpus_cases=len(plan.corpus),
            seconds=round(seconds, 3),
            cases_per_second=round(self._cases / seconds, 2) if seconds > 0 else 0.0,
            planner_seconds=round(self._planner_seconds, 3),
            verdicts=dict(self._verdicts),
            inconclusive=dict(self._reasons),
            planned_under_other_hash_seeds=compared,
            findings=tuple(findings),
            known=self._known.met({w.fingerprint for w in self._witnesses.values()}),
            planners=planners,
        )
