"""The sound planner's half of every comparison, asked once for all mutants.

A *stream* is the cases of one seed in order. What the sound planner answers to them, and what that breaks, is the same
beside every mutant, so it is kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Literal

from msgspec import Struct, structs

from fuzz.pair import Answers, Pair, broken_in_parts, told_once
from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Hello
from fuzz.planners.trees import Launch
from fuzz.ruling import ruling_of
from fuzz.score.naive import draw_naive
from fuzz.strategies import Shape, draw_case, vocabulary_of
from oracles.case import Case
from oracles.compare import Verdict, judge
from oracles.law import Breach, Contract, Evidence
from oracles.laws import broken_laws
from oracles.plan import Outcome
from oracles.reference import Unruled, compare_with, expected_plan

Strategy = Literal["kvfuzz", "naive"]
Oracle = Literal["all", "no reference", "no laws", "no comparison", "crashes only"]

DRAWN: dict[Strategy, Callable[[random.Random, Shape], Case]] = {"kvfuzz": draw_case, "naive": draw_naive}
COMPARISON = "G7"
"""The law that compares the two planners with each other; all others judge a planner by itself."""


class Judged(Struct, frozen=True, kw_only=True):
    """What one planner did with one case: its evidence, what that breaks, and the CPU seconds both took (for the sound
    planner also the drawing of the case and the reference's plan of it).
    """

    evidence: Evidence
    laws: list[Breach]
    reference: list[Breach]
    seconds: float


class Asked(Struct, frozen=True, kw_only=True):
    """A case of a stream: what is asked about it, what is expected, and what the sound planner did."""

    labels: tuple[str, ...]
    questions: tuple[Question, ...]
    expected: Outcome | Unruled
    sound: Judged
    in_parts: list[Breach]

    @property
    def case(self) -> Case:
        """The case itself."""
        return self.sound.evidence.case


class Sound:
    """The planner without a defect under one contract, and its streams."""

    def __init__(self, launch: Launch, contract: Contract) -> None:
        self.contract: Contract = contract
        self._planner = Planner(launch)
        # A pair with itself, for how a pair asks and gathers evidence.
        self._pair = Pair.of(self._planner, self._planner, contract)
        self._streams: dict[tuple[Strategy, int], list[Asked]] = {}

    def start(self) -> Future[Hello]:
        """Begins to start the process."""
        return self._planner.start()

    def close(self) -> None:
        """Ends the process."""
        self._planner.close()

    def cases(self, strategy: Strategy, seed: int, first: int, count: int) -> list[Asked]:
        """Cases ``first`` to ``first + count`` of a stream. Raises PlannerError."""
        held = self._streams.setdefault((strategy, seed), [])
        while len(held) < first + count:
            held.extend(self._more(strategy, seed, len(held), max(1, first + count - len(held))))
        return held[first : first + count]

    def _more(self, strategy: Strategy, seed: int, first: int, count: int) -> list[Asked]:
        hello = self._planner.hello()
        shape = Shape(vocabulary=vocabulary_of(hello))
        rules = ruling_of(self._planner).rules
        begun = time.thread_time()
        drawn = [DRAWN[strategy](random.Random(f"kvfuzz {seed} {first + at}"), shape) for at in range(count)]
        # A run asks some cases twice or in a changed form, by their number.
        asked = self._pair.questions(drawn, first)
        drawing = (time.thread_time() - begun) / count
        answers = iter(self._planner.ask([question for one in asked for question in one.values()]))
        made = []
        for case, questions in zip(drawn, asked, strict=True):
            begun = time.thread_time()
            unruled = Unruled(reason="no rule set")
            expected = expected_plan(case, rules, self.contract) if rules is not None else unruled
            before = drawing + time.thread_time() - begun
            sound = self.judged(case, expected, {label: next(answers) for label in questions}, None)
            made.append(Asked(
                labels=tuple(questions), questions=tuple(questions.values()), expected=expected,
                sound=structs.replace(sound, seconds=before + sound.seconds), in_parts=broken_in_parts(sound.evidence),
            ))  # fmt: skip
        return made

    def judged(self, case: Case, expected: Outcome | Unruled, answers: Answers, beside: Evidence | None) -> Judged:
        """What answers break; ``beside`` is the evidence of the sound planner, when another answered."""
        begun = time.thread_time()
        evidence = self._pair.evidence(case, answers)
        if beside is not None:
            evidence = _beside(evidence, beside)
        laws, reference = broken_laws(evidence), compare_with(expected, evidence.outcome)
        planning = sum(answer.seconds for answer in answers.values())
        return Judged(
            evidence=evidence, laws=laws, reference=reference, seconds=planning + time.thread_time() - begun
        )  # fmt: skip


def _beside(evidence: Evidence, sound: Evidence) -> Evidence:
    return structs.replace(evidence, counterpart=sound.outcome, counterpart_parts=sound.parts)


def told(judged: Judged, oracle: Oracle) -> list[Breach]:
    """The breaches that a run with this oracle would hear of.

    As in a run, a difference from the reference in a stage where a law is broken is that breach once more.
    """
    laws = [b for b in judged.laws if b.law != COMPARISON] if oracle == "no comparison" else judged.laws
    if oracle == "no reference":
        return laws
    if oracle == "no laws":
        return judged.reference
    return told_once(laws, judged.reference)


def verdict_on(asked: Asked, other: Judged, oracle: Oracle) -> Verdict:
    """What a run with this oracle says of a case, ``other`` being the patched planner."""
    outcomes = asked.sound.evidence.outcome, other.evidence.outcome
    return judge(told(asked.sound, oracle), told(other, oracle), outcomes, asked.in_parts)


def fingerprints(breaches: Iterable[Breach]) -> frozenset[str]:
    """What the sound planner compared with itself would be told of."""
    return frozenset(breach.fingerprint("patched") for breach in breaches)


__all__ = [
    "DRAWN", "Asked", "Judged", "Oracle", "Sound", "Strategy", "fingerprints", "told", "verdict_on",
]  # fmt: skip
