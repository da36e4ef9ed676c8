"""A *batch* names some cases so shortly that it fits a message, and so exactly that any lane draws the same ones."""

from __future__ import annotations

import random
from typing import Annotated

from msgspec import Meta, Struct

from fuzz.strategies import Shape, draw_case
from fuzz.strategies.mutate import mutate
from oracles.case import Case
from oracles.compare import Finding
from oracles.plan import Outcome

BATCH = 24
"""Cases per batch: about 0.3 s of work, so that the display moves and a deadline stops in time."""

MUTATED = 4
"""One drawn case in four is a mutant of one that reached something new, once there are such cases."""

STEPS = 3
"""A mutant is one to three steps from its parent: near enough to keep what made the parent worth keeping."""


class Batch(Struct, frozen=True, kw_only=True, tag="batch"):
    """Cases ``first`` to ``first + count - 1`` of a seed; mutants among them come from ``parents``. A batch with
    ``given`` is these cases instead, and draws none; a ``whole`` one is asked all that can be asked of a case.
    """

    number: Annotated[int, Meta(ge=0)]
    first: Annotated[int, Meta(ge=0)]
    count: Annotated[int, Meta(ge=1, le=BATCH)]
    whole: bool = False
    seed: int = 0
    parents: tuple[Case, ...] = ()
    given: tuple[Case, ...] = ()


class Sample(Struct, frozen=True, kw_only=True):
    """A judged case with both outcomes, to be planned again elsewhere (law G9)."""

    case: Case
    unpatched: Outcome
    patched: Outcome


class Recheck(Struct, frozen=True, kw_only=True, tag="recheck"):
    """Samples of one lane, for another one whose processes have other hash seeds."""

    samples: tuple[Sample, ...]


class Finish(Struct, frozen=True, kw_only=True, tag="finish"):
    """The run is over; what is left to do?"""


Task = Batch | Recheck | Finish
"""What a lane is given to do."""


class Counted(Struct, frozen=True, kw_only=True):
    """One fault in a batch: how often it was seen, and its smallest case where that is news to the lane."""

    key: str
    seen: int
    finding: Finding
    case: Case | None = None


class Result(Struct, frozen=True, kw_only=True, tag="result"):
    """A judged batch. ``pairs`` counts the cases that show a pair of features, by its number; ``fresh`` and
    ``branches`` give the place in the batch of the first case that shows a pair, or takes a branch of the planner,
    that is new to the lane.
    """

    number: int
    cases: int = 0
    mutants: int = 0
    verdicts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    planner_seconds: float = 0.0
    pairs: dict[int, int] = {}
    fresh: dict[int, int] = {}
    branches: dict[str, int] = {}
    faults: tuple[Counted, ...] = ()
    samples: tuple[Sample, ...] = ()
    compared: int = 0
    canary_law: str = ""
    canary_cases: int = 0


def cases_of(batch: Batch, shape: Shape) -> list[Case]:
    """The cases that a batch names; the same on every machine for planners that know the same."""
    return [case_in(batch, at, shape) for at in range(batch.count)]


def case_in(batch: Batch, at: int, shape: Shape) -> Case:
    """The case at a place of a batch."""
    return batch.given[at] if batch.given else case_at(batch.seed, batch.first + at, shape, batch.parents)


def mutants_in(batch: Batch) -> int:
    """How many cases of a batch are to be mutants."""
    if batch.given or not batch.parents:
        return 0
    return sum(is_mutant(batch.seed, batch.first + at) for at in range(batch.count))


def is_mutant(seed: int, number: int) -> bool:
    """Whether case ``number`` of ``seed`` is to be a mutant, if there are parents."""
    return random.Random(f"kvfuzz {seed} {number} mutate?").randrange(MUTATED) == 0


def case_at(seed: int, number: int, shape: Shape, parents: tuple[Case, ...]) -> Case:
    """Case ``number`` of a seed: drawn afresh, or a mutant of one of ``parents``."""
    if parents and is_mutant(seed, number):
        source = random.Random(f"kvfuzz {seed} {number} mutate")
        made = parents[source.randrange(len(parents))]
        other = parents[source.randrange(len(parents))]
        for _ in range(source.randint(1, STEPS)):
            made = mutate(source, made, other)
        if shape.vocabulary.can_ask(made):
            return made
    # One generator a case, so that case N does not depend on what the cases before it consumed.
    return draw_case(random.Random(f"kvfuzz {seed} {number}"), shape)
