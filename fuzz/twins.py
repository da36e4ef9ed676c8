"""The same planners once more, in other processes with other hash seeds (law G9).

A sample of the cases is planned there too. Twins start in the background once the campaign runs, and what is sampled
before they are up waits for them, so that which cases are compared depends on the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

from msgspec import Struct

from fuzz.pair import Judged, Pair
from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Answer
from oracles.case import Case
from oracles.compare import Finding, judge
from oracles.law import Evidence
from oracles.laws import broken_laws

EVERY = 16
"""One case in sixteen: a set whose order decides something shows in most models that reach it."""

AT_MOST = 2_000
"""A bound on what waits for twins that are slow to start; enough for half an hour."""

REPETITION = frozenset({"G9"})


class _Waiting(Struct, frozen=True, kw_only=True):
    judged: Judged
    unpatched: Future[list[Answer]]
    patched: Future[list[Answer]]


class Twins:
    """Both planners under other hash seeds."""

    def __init__(self, pair: Pair) -> None:
        self._contract = pair.contract
        self._unpatched = self._twin(pair.unpatched)
        self._patched = self._twin(pair.patched)
        self._waiting: list[_Waiting] = []
        self._seen = 0
        self.compared = 0

    @staticmethod
    def _twin(planner: Planner) -> Planner:
        return Planner(
            planner.launch, hash_seed=planner.hash_seed + 100, case_seconds=planner.case_seconds, memory=planner.memory
        )

    def sample(self, batch: list[Judged]) -> None:
        """Puts a share of a judged batch to the twins, without waiting."""
        for judged in batch:
            self._seen += 1
            if self._seen % EVERY or self._seen > EVERY * AT_MOST:
                continue
            questions = [Question(judged.case)]
            self._waiting.append(
                _Waiting(
                    judged=judged,
                    unpatched=self._unpatched.submit(questions),
                    patched=self._patched.submit(questions),
                )
            )

    def answered(self, *, wait: bool = False) -> Iterator[tuple[Case, tuple[Finding, ...]]]:
        """Findings of the samples whose answers are in; with ``wait`` of all. Raises PlannerError."""
        rest = []
        for one in self._waiting:
            if wait or (one.unpatched.done() and one.patched.done()):
                self.compared += 1
                findings = self._compare(one)
                if findings:
                    yield one.judged.case, findings
            else:
                rest.append(one)
        self._waiting = rest

    def _compare(self, one: _Waiting) -> tuple[Finding, ...]:
        judged = one.judged
        sides = []
        for first, future in ((judged.unpatched, one.unpatched), (judged.patched, one.patched)):
            twin = future.result()[0].outcome
            evidence = Evidence(case=judged.case, contract=self._contract, outcome=first, twin=twin)
            sides.append(broken_laws(evidence, REPETITION))
        return judge(sides[0], sides[1], (judged.unpatched, judged.patched)).findings

    def close(self) -> None:
        """Ends both processes."""
        self._unpatched.close()
        self._patched.close()
