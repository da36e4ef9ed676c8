"""A *lane*: a pair of warm planners and their judge, one core's worth of work.

A lane asks one planner, then the other, then judges, so it keeps one core busy; a campaign has one lane a core. It
sends back counts, and cases only where they are news: the smallest of a fault so far, the first to show a pair of
features or to take a branch.
"""

from __future__ import annotations

import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from fuzz.campaign.batches import Batch, Counted, Finish, Recheck, Result, Sample, Task, cases_of, mutants_in
from fuzz.campaign.canary import CanaryWatch
from fuzz.campaign.events import Witness
from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Judged, Pair, PlannerInfo
from fuzz.planners.address import AddressError
from fuzz.planners.fetch import FetchError
from fuzz.planners.process import Planner, PlannerError, Question
from fuzz.planners.protocol import Hello
from fuzz.planners.trees import Launch
from fuzz.replay.memory.check import Disagreement, replay_memory
from fuzz.strategies import Shape, vocabulary_of
from fuzz.strategies.features import Pair as FeaturePair
from fuzz.strategies.features import features
from oracles.case import Case, Shortlex, canonical, shortlex
from oracles.compare import Finding, judge
from oracles.law import Contract, Evidence
from oracles.laws import broken_laws
from oracles.plan import Planned

TRACED = 64
"""One case in 64 is planned once more under a tracer, for the branches it takes: that costs ten times a plan."""

SAMPLED = 16
"""One case in sixteen is planned under other hash seeds: a set whose order decides something shows in most models."""

PAINTED = 16
"""One plan in sixteen, and every one that reaches something new, is painted, byte for byte, to hold the arithmetic of
placement against it.
"""

REPETITION = frozenset({"G9"})

SEEDS_APART = 10
"""Lanes differ in their hash seeds, and so do the two planners of one, so that order by hash shows."""

AskedT = TypeVar("AskedT")
ReplyT = TypeVar("ReplyT")


class Setup(Struct, frozen=True, kw_only=True, tag="setup"):
    """What a lane is made of. ``in_flight`` is the folder for cases about to be asked; none when empty."""

    lane: int
    unpatched: Launch
    patched: Launch
    contract: Contract
    case_seconds: float
    memory: int
    samples: bool
    requests: bool
    canary: Launch | None
    in_flight: str = ""


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    """Both planners of a lane are up."""

    hellos: tuple[Hello, Hello]
    planners: tuple[PlannerInfo, PlannerInfo]


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """The lane cannot do what it was asked; doing it elsewhere would not help."""

    error: str


def or_failed(work: Callable[[AskedT], ReplyT], asked: AskedT) -> ReplyT | Failed:
    """What ``work`` makes of what is asked, or why it could not be done."""
    try:
        return work(asked)
    except (AddressError, FetchError, PlannerError) as error:
        return Failed(error=str(error))
    except Disagreement as error:
        return Failed(error=f"kvfuzz itself is wrong, please report it: {error}")
    except Exception as error:
        # A judge that fails would fail on the same batch wherever it is asked again.
        traceback.print_exc()
        at = f" on batch {asked.number}" if isinstance(asked, Batch) else ""
        return Failed(error=f"kvfuzz itself failed{at}, please report it: {type(error).__name__}: {error}")


def fault_key(told: Finding | Witness) -> str:
    """What tells faults apart in one run: one fault may be fixed here and unfixed there."""
    return f"{told.fingerprint}:{told.verdict}"


def pair_number(pair: FeaturePair) -> int:
    """A pair of features as 32 bits, the same on every machine."""
    return int.from_bytes(hashlib.blake2b("\0".join(pair).encode(), digest_size=4).digest(), "big")


def in_flight_path(folder: Path, number: int) -> Path:
    """Where the cases of a batch lie while it is asked."""
    return folder / f"{number:08}.jsonl"


class Lane:
    """Two planners, their judge, and what this lane has seen."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        seed = 1 + SEEDS_APART * setup.lane
        self._pair = Pair.of(
            Planner(setup.unpatched, hash_seed=seed, case_seconds=setup.case_seconds, memory=setup.memory),
            Planner(setup.patched, hash_seed=seed + 1, case_seconds=setup.case_seconds, memory=setup.memory),
            setup.contract,
        )
        self._pair.serves = setup.requests
        self._canary: CanaryWatch | None = None
        self._shape = Shape()
        self._smallest: dict[str, Shortlex] = {}
        self._pairs: set[int] = set()
        self._branches: set[str] = set()

    def start(self) -> Ready:
        """Starts both planners side by side. Raises PlannerError."""
        hellos = self._pair.start()
        self._shape = Shape(vocabulary=vocabulary_of(*hellos))
        if self._setup.canary is not None:
            self._canary = CanaryWatch(self._pair.patched, self._setup.canary, self._setup.contract)
        return Ready(hellos=hellos, planners=self._pair.infos())

    def close(self) -> None:
        """Ends the planners."""
        self._pair.unpatched.close()
        self._pair.patched.close()
        if self._canary is not None:
            self._canary.close()

    def do(self, task: Task) -> Result:
        """Does one task. Raises PlannerError when a planner cannot be started again."""
        match task:
            case Batch():
                return self._work(task)
            case Recheck():
                return self._recheck(task)
            case Finish():
                return self._finish()

    def _work(self, batch: Batch) -> Result:
        """Asks, judges and sums up a batch."""
        cases = cases_of(batch, self._shape)
        self._save(batch.number, cases)
        pair = FocusedPair(self._pair, None) if batch.whole else self._pair
        judged = list(pair.collect(pair.submit_in_turn(cases, batch.first)))
        reasons = Counter(one.verdict.reason for one in judged if one.verdict.reason)
        counts, fresh = self._features(cases)
        branches = self._trace(batch, cases)
        self._paint(batch, judged, {*fresh.values(), *branches.values()})
        law, asked = self._canary.look(cases) if self._canary is not None else ("", 0)
        return Result(
            number=batch.number,
            cases=len(cases),
            mutants=mutants_in(batch),
            verdicts=dict(Counter(one.verdict.name for one in judged)),
            reasons=dict(reasons),
            planner_seconds=sum(one.planner_seconds for one in judged),
            pairs=counts,
            fresh=fresh,
            branches=branches,
            faults=self._faults([(one.case, one.verdict.findings) for one in judged]),
            samples=self._samples(batch, judged),
            canary_law=law,
            canary_cases=asked,
        )

    def _recheck(self, asked: Recheck) -> Result:
        """Plans another lane's samples here, where the hash seeds are others."""
        questions = [Question(sample.case) for sample in asked.samples]
        unpatched = self._pair.unpatched.ask(questions)
        patched = self._pair.patched.ask(questions)
        found: list[tuple[Case, tuple[Finding, ...]]] = []
        for sample, before, after in zip(asked.samples, unpatched, patched, strict=True):
            sides = [
                broken_laws(
                    Evidence(case=sample.case, contract=self._setup.contract, outcome=first, twin=answer.outcome),
                    REPETITION,
                )
                for first, answer in ((sample.unpatched, before), (sample.patched, after))
            ]
            verdict = judge(sides[0], sides[1], (sample.unpatched, sample.patched))
            found.append((sample.case, verdict.findings))
        return Result(number=-1, compared=len(questions), faults=self._faults(found))

    def _finish(self) -> Result:
        """Hunts a canary that is still alive."""
        law, asked = self._canary.hunt(self._shape) if self._canary is not None else ("", 0)
        return Result(number=-1, canary_law=law, canary_cases=asked)

    def _save(self, number: int, cases: Sequence[Case]) -> None:
        # One write and no fsync: what must be survived here is the death of a process, not of the machine.
        if self._setup.in_flight:
            lines = b"".join(canonical(case) + b"\n" for case in cases)
            in_flight_path(Path(self._setup.in_flight), number).write_bytes(lines)

    @staticmethod
    def _paint(batch: Batch, judged: Sequence[Judged], reached: set[int]) -> None:
        """Paints some plans, and those of the cases that reached something new. What painting finds, the laws of
        placement have found; a difference between the two is a fault of ours. Raises Disagreement.
        """
        for at, one in enumerate(judged):
            if at in reached or (batch.first + at) % PAINTED == 0:
                for outcome in (one.unpatched, one.patched):
                    if isinstance(outcome, Planned):
                        replay_memory(one.case, outcome.plan)

    def _features(self, cases: Sequence[Case]) -> tuple[dict[int, int], dict[int, int]]:
        counts: Counter[int] = Counter()
        fresh: dict[int, int] = {}
        for at, case in enumerate(cases):
            shown = {pair_number(pair) for pair in features(case).pairs()}
            counts.update(shown)
            for number in shown - self._pairs:
                fresh[number] = at
            self._pairs |= shown
        return dict(counts), fresh

    def _trace(self, batch: Batch, cases: Sequence[Case]) -> dict[str, int]:
        places = [at for at in range(len(cases)) if (batch.first + at) % TRACED == 0]
        if not places:
            return {}
        answers = self._pair.patched.ask([Question(cases[at], "branches") for at in places])
        taken = {key: at for at, answer in reversed(list(zip(places, answers, strict=True))) for key in answer.branches}
        fresh = {key: at for key, at in taken.items() if key not in self._branches}
        self._branches |= fresh.keys()
        return fresh

    def _samples(self, batch: Batch, judged: Sequence[Judged]) -> tuple[Sample, ...]:
        if not self._setup.samples:
            return ()
        return tuple(
            Sample(case=one.case, unpatched=one.unpatched, patched=one.patched)
            for at, one in enumerate(judged)
            if (batch.first + at) % SAMPLED == 0
        )

    def _faults(self, found: Sequence[tuple[Case, tuple[Finding, ...]]]) -> tuple[Counted, ...]:
        seen: Counter[str] = Counter()
        best: dict[str, tuple[Finding, Case | None]] = {}
        for case, findings in found:
            if not findings:
                continue
            size = shortlex(case)
            for finding in findings:
                key = fault_key(finding)
                seen[key] += 1
                if key not in self._smallest or size < self._smallest[key]:
                    self._smallest[key] = size
                    best[key] = finding, case
                else:
                    best.setdefault(key, (finding, None))
        return tuple(
            Counted(key=key, seen=count, finding=best[key][0], case=best[key][1]) for key, count in seen.items()
        )
