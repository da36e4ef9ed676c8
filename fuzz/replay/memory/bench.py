"""What memory replay costs: the figures of ``kvfuzz bench``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from fuzz.replay import device
from fuzz.replay.memory.check import by_arithmetic, replay_memory
from oracles.case import Case
from oracles.plan import Plan

GIB_6 = 6 * 2**30
BIG_POOLS = 5


class ReplayCost(Struct, frozen=True, kw_only=True):
    """Medians over real plans, in milliseconds of the wall clock, and the cost of five pools of 6 GiB.

    ``big_seconds`` is all five in a child process, its start left out; ``big_peak_bytes`` its largest resident size.
    """

    plans: int
    replay_ms: float
    arithmetic_ms: float
    big_pools: int
    big_seconds: float
    big_peak_bytes: int


def replay_cost(plans: Sequence[tuple[Case, Plan]]) -> ReplayCost:
    """Times memory replay and the arithmetic alone on ``plans``, then the large pools. Raises Disagreement."""
    seconds, peak, clean = big_pools()
    return ReplayCost(
        plans=len(plans),
        replay_ms=_median(plans, replay_memory),
        arithmetic_ms=_median(plans, by_arithmetic),
        big_pools=clean,
        big_seconds=seconds,
        big_peak_bytes=peak,
    )


def _median(plans: Sequence[tuple[Case, Plan]], work: Callable[[Case, Plan], object]) -> float:
    spent = []
    for case, plan in plans:
        begun = time.perf_counter()
        work(case, plan)
        spent.append(time.perf_counter() - begun)
    return round(1000 * statistics.median(spent), 3)


def big_pools() -> tuple[float, int, int]:
    """Seconds, peak bytes and pools found clean, of five pools of 6 GiB painted sparsely in one child process."""
    pools = [_pool(f"{at}", layers=20 + 10 * at, outermost=at % 2 == 0) for at in range(BIG_POOLS)]
    results = list(device.replay(pools, "cpu", cap_gib=8.0, budget_s=120.0))
    summary = results.pop()["summary"]
    return (
        round(sum(one.get("seconds", 0.0) for one in results), 3),
        summary.get("peak_bytes", 0),
        sum(one["result"] == "clean" for one in results),
    )


def _pool(identity: str, *, layers: int, outermost: bool) -> device.Pool:
    """A sound pool of 6 GiB in two groups that overlay each other, blocks or layers outermost."""
    page = 65_536
    blocks = GIB_6 // (page * layers)
    pages = [
        device.Page(
            layer=f"{group}.{at}", group=group, start=at * page * (1 if outermost else blocks),
            block_stride=page * (layers if outermost else 1), heads=1, head_stride=page, strip=page, content=page,
            alignment=16,
        )
        for group in range(2)
        for at in range(layers)
    ]  # fmt: skip
    names = [one.layer for one in pages]
    return device.Pool(
        format=device.FORMAT, id=identity, planner="", worker=0, layout="BLNHC" if outermost else "LBNHC", forced=False,
        pool_bytes=blocks * layers * page, num_blocks=blocks, here=names, grouped=[names], placed=names, pages=pages,
        arithmetic=[],
    )  # fmt: skip
