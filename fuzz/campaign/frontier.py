"""The *frontier*: what a campaign has reached, and the cases worth mutating because they reached it first.

What is counted are pairs of features (``fuzz.strategies.features``) and branches of the planner's source. How near
the end is comes from a rule of Good and Turing: as many new pairs are to be expected of the next case as pairs were
seen in exactly one case, per case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from fuzz.campaign.batches import Result
from fuzz.store import CASE_ID
from oracles.case import Case, case_id

POOL = 512
"""Cases that can be parents. What comes later is kept on disk and not mutated, so that memory stays flat."""

PARENTS = 6
"""Parents sent with a batch; about six of its cases are mutants."""

MAX_PARENT_LAYERS = 64
"""Larger ones cost more than they show."""


class Reached(Struct, frozen=True, kw_only=True):
    """A frontier as stored: how many cases showed each pair, the branches taken, the ids of the pool in order."""

    cases: int
    pairs: dict[int, int]
    branches: tuple[str, ...]
    pool: tuple[Annotated[str, Meta(pattern=CASE_ID)], ...]


class Frontier:
    """What was reached so far."""

    def __init__(self, pool: Sequence[Case] = (), reached: Reached | None = None) -> None:
        self._pool: list[Case] = []
        self._ids: set[str] = set()
        for case in pool:
            self.adopt(case)
        self._cases = reached.cases if reached is not None else 0
        self._pairs: dict[int, int] = dict(reached.pairs) if reached is not None else {}
        self._branches: set[str] = set(reached.branches) if reached is not None else set()

    @property
    def pairs(self) -> int:
        """Distinct pairs of features seen."""
        return len(self._pairs)

    @property
    def branches(self) -> int:
        """Distinct branches of the planner seen taken."""
        return len(self._branches)

    @property
    def size(self) -> int:
        """Cases that can be parents."""
        return len(self._pool)

    @property
    def novelty(self) -> float:
        """The estimated number of new pairs that the next case shows."""
        once = sum(count == 1 for count in self._pairs.values())
        return once / self._cases if self._cases else 0.0

    def absorb(self, result: Result) -> list[int]:
        """Takes in a batch; gives the places in it of cases that reached something first."""
        places = {at for number, at in result.fresh.items() if number not in self._pairs}
        places |= {at for key, at in result.branches.items() if key not in self._branches}
        for number, count in result.pairs.items():
            self._pairs[number] = self._pairs.get(number, 0) + count
        self._branches |= result.branches.keys()
        self._cases += result.cases
        return sorted(places)

    def adopt(self, case: Case) -> bool:
        """Makes a case a parent, if there is room and it is none yet."""
        identity = case_id(case)
        if len(self._pool) >= POOL or identity in self._ids or not 0 < len(case.layers) <= MAX_PARENT_LAYERS:
            return False
        self._ids.add(identity)
        self._pool.append(case)
        return True

    def parents(self, seed: int, number: int, among: int) -> tuple[Case, ...]:
        """The parents of batch ``number``, chosen by seed among the first ``among`` of the pool."""
        if not among:
            return ()
        source = random.Random(f"kvfuzz {seed} {number} parents")
        return tuple(self._pool[source.randrange(among)] for _ in range(PARENTS))

    def reached(self) -> Reached:
        """For storing."""
        return Reached(
            cases=self._cases, pairs=dict(self._pairs), branches=tuple(sorted(self._branches)),
            pool=tuple(case_id(case) for case in self._pool),
        )  # fmt: skip
