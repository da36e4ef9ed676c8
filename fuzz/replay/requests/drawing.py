"""Draws workloads that fit a case: the same random state, the same workload."""

from __future__ import annotations

import random

from fuzz.planners.workload import Arrival, Turn, Workload
from oracles.case import Case

TURNS = 100
"""Steps of a workload: some twenty requests come and go."""

POOLS = (0, 1, 7, 19)
"""Blocks beyond the smallest accepted pool: just enough, one over, and two counts that divide nothing."""

TEXTS = 3
"""Common texts. Few, so that prefixes are found again; more than one, so that a wrong one can be."""

SHARED = (0, 8, 15, 16, 17, 24, 32, 40, 48)
"""Sixteenths of a scheduler block of common text: on block borders, one unit off them, and in the middle."""


def draw_workload(case: Case, rng: random.Random, turns: int = TURNS) -> Workload:
    """A workload of ``turns`` steps for ``case``."""
    lag = int(case.settings.batches_in_flight > 1 and rng.random() < 0.5)
    return Workload(
        turns=tuple(_turn(rng, number, turns) for number in range(turns)),
        fullness=rng.choice((4, 5, 7, 10, 16, 30)),
        lag=lag,
        drafts=not lag and case.settings.speculative is not None and rng.random() < 0.8,
        pools=POOLS,
    )


def _turn(rng: random.Random, number: int, turns: int) -> Turn:
    arriving = 1 if number == 0 else (number < turns * 3 // 4) * sum(rng.random() < 0.15 for _ in range(2))
    return Turn(
        arrivals=tuple(_arrival(rng) for _ in range(arriving)),
        aborts=(rng.randrange(16),) if rng.random() < 0.03 else (),
        preempts=(rng.randrange(16),) if rng.random() < 0.04 else (),
        # Whole batches mostly: small budgets alone would leave aligned recurrent states without a chunk to run.
        budget=0 if rng.random() < 0.6 else rng.choice((1, 3, 8, 16, 21, 32)),
        accepted=rng.randrange(9),
    )


def _arrival(rng: random.Random) -> Arrival:
    shared = rng.choice(SHARED) if rng.random() < 0.75 else 0
    return Arrival(
        text=rng.randrange(TEXTS),
        shared=shared,
        own=rng.choice((0, 0, 1, 7, 16, 33)),
        tokens=rng.choice((0, 1, 2, 5)) if shared else 1 + rng.randrange(5),
        output=rng.choice((1, 2, 4, 9, 20, 40)),
    )
