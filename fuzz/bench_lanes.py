"""Measures how a campaign grows with the cores it is given: lanes that are all up, fed from one queue."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait

from msgspec import Struct

from fuzz.campaign.batches import BATCH, Batch, Result
from fuzz.campaign.crew import QUEUED
from fuzz.campaign.lane import Setup
from fuzz.campaign.process import LaneProcess
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import Launch
from oracles.law import Contract


class Lanes(Struct, frozen=True, kw_only=True):
    """A number of lanes: cases per second by the clock, and that as a multiple of one lane's."""

    jobs: int
    cases_per_second: float
    speedup: float


def scaling(unpatched: Launch, patched: Launch, contract: Contract, jobs: tuple[int, ...], cases: int) -> list[Lanes]:
    """Times ``cases`` cases with each number of lanes. Raises PlannerError."""
    rates = [_rate(unpatched, patched, contract, count, cases) for count in jobs]
    return [
        Lanes(jobs=count, cases_per_second=round(rate, 1), speedup=round(rate / rates[0], 2))
        for count, rate in zip(jobs, rates, strict=True)
    ]


def _rate(unpatched: Launch, patched: Launch, contract: Contract, jobs: int, cases: int) -> float:
    lanes = [
        LaneProcess(
            Setup(
                lane=number, unpatched=unpatched, patched=patched, contract=contract, case_seconds=CASE_SECONDS,
                memory=MEMORY_BYTES, samples=False, requests=False, canary=None,
            )
        )
        for number in range(jobs)
    ]  # fmt: skip
    try:
        for starting in [lane.start() for lane in lanes]:
            starting.result()
        for warming in [lane.submit(_batch(10_000 + at)) for at, lane in enumerate(lanes)]:
            warming.result()
        begun = time.perf_counter()
        done = _feed(lanes, -(-cases // BATCH))
        return done / (time.perf_counter() - begun)
    finally:
        for lane in lanes:
            lane.close()


def _batch(number: int) -> Batch:
    return Batch(number=number, first=number * BATCH, count=BATCH, seed=0)


def _feed(lanes: list[LaneProcess], batches: int) -> int:
    numbers = iter(range(batches))
    working: dict[Future[Result], LaneProcess] = {}
    done = 0
    for lane in lanes * QUEUED:
        if (number := next(numbers, None)) is not None:
            working[lane.submit(_batch(number))] = lane
    while working:
        finished, _ = wait(working, return_when=FIRST_COMPLETED)
        for future in finished:
            lane = working.pop(future)
            done += future.result().cases
            if (number := next(numbers, None)) is not None:
                working[lane.submit(_batch(number))] = lane
    return done
