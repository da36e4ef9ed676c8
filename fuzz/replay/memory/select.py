"""Which plans are worth a device's time: one for each feature tuple, smallest first."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from fuzz.planners.process import Planner, Question
from fuzz.replay.memory.check import FEWEST_BLOCKS, one_worker, pools_with_arithmetic
from fuzz.replay.memory.pools import NotReplayable, Pool, is_replayable
from fuzz.replay.memory.shrink import shrunk
from fuzz.strategies import Shape, draw_case
from fuzz.strategies.features import Features, features
from oracles.case import Case, shortlex
from oracles.plan import Plan, plan_of

SMALL_BYTES = 2**23
"""Pools that a device paints byte for byte in some milliseconds."""

BATCH = 64


def drawn_cases(seed: int, count: int, shape: Shape) -> Iterator[Case]:
    """``count`` cases from a seed, the same as a campaign's."""
    for number in range(count):
        yield draw_case(random.Random(f"kvfuzz {seed} {number}"), shape)


def interesting(cases: Iterable[Case]) -> list[Case]:
    """The smallest case of each feature tuple, in order of size."""
    smallest: dict[Features, Case] = {}
    for case in sorted(cases, key=shortlex):
        smallest.setdefault(features(case), case)
    return list(smallest.values())


def planned_pools(planner: Planner, cases: Sequence[Case], at_most: int) -> list[Pool]:
    """The pools of the first ``at_most`` cases that the planner places, each as planned and once more in a small pool
    where it is large. Raises PlannerError.
    """
    pools: list[Pool] = []
    plans = 0
    for batch in _batched(cases):
        for case, answer in zip(batch, planner.ask([Question(case) for case in batch]), strict=True):
            plan = plan_of(answer.outcome)
            if plans == at_most:
                return pools
            if plan is None or not is_replayable(plan):
                continue
            try:
                made = both_sizes(case, plan, planner.address)
            except NotReplayable:
                continue
            pools += made
            plans += bool(made)  # a case without layers has none
    return pools


def _batched(cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
    for at in range(0, len(cases), BATCH):
        yield cases[at : at + BATCH]


def both_sizes(case: Case, plan: Plan, planner: str) -> list[Pool]:
    """The plan's pools as placed, and small ones of the large. Raises NotReplayable."""
    pools = pools_with_arithmetic(case, plan, planner)
    assert plan.placement is not None
    for pool in list(pools):
        if pool.pool_bytes <= SMALL_BYTES:
            continue
        blocks = max(FEWEST_BLOCKS, SMALL_BYTES * pool.num_blocks // pool.pool_bytes)
        alone, lone_plan = one_worker(case, plan, pool.worker)
        small = shrunk(plan.placement[pool.worker], case.settings.layout, blocks, set(pool.here))
        if small is not None:
            lone_plan = structs.replace(lone_plan, placement=(small,))
            told = pools_with_arithmetic(alone, lone_plan, planner)
            pools += (structs.replace(one, id=pool.id, worker=pool.worker) for one in told)
    return pools
