"""Measures how a campaign grows with the cores it is given: lanes that are all up, fed from one queue."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait

from msgspec import Struct, structs

from fuzz.campaign.batches import BATCH, Batch, Result
from fuzz.campaign.crew import QUEUED
from fuzz.campaign.lane import Setup
from fuzz.campaign.process import LaneProcess
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.protocol import pack
from fuzz.planners.trees import Launch
from oracles.law import Contract


class Lanes(Struct, frozen=True, kw_only=True):
    """A number of lanes: cases per second by the clock, and that as a multiple of one lane's. Of the engine's side: CPU
    milliseconds a batch, and bytes a batch to a lane and back (without parents of mutants).
    """

    jobs: int
    cases_per_second: float
    speedup: float
    engine_ms: float
    bytes_out: int
    bytes_back: int


def scaling(unpatched: Launch, patched: Launch, contract: Contract, jobs: tuple[int, ...], cases: int) -> list[Lanes]:
    """Times ``cases`` cases with each number of lanes. Raises PlannerError."""
    found: list[Lanes] = []
    for count in jobs:
        one = _timed(unpatched, patched, contract, count, cases)
        first = found[0].cases_per_second if found else one.cases_per_second
        found.append(structs.replace(one, speedup=round(one.cases_per_second / first, 2)))
    return found


def _timed(unpatched: Launch, patched: Launch, contract: Contract, jobs: int, cases: int) -> Lanes:
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
        begun, spent = time.perf_counter(), time.process_time()
        results = _feed(lanes, -(-cases // BATCH))
        wall, cpu = time.perf_counter() - begun, time.process_time() - spent
        return Lanes(
            jobs=jobs,
            cases_per_second=round(sum(result.cases for result in results) / wall, 1),
            speedup=1.0,
            engine_ms=round(1000 * cpu / len(results), 3),
            bytes_out=len(pack(_batch(0))),
            bytes_back=sum(len(pack(result)) for result in results) // len(results),
        )
    finally:
        for lane in lanes:
            lane.close()


def _batch(number: int) -> Batch:
    return Batch(number=number, first=number * BATCH, count=BATCH, seed=0)


def _feed(lanes: list[LaneProcess], batches: int) -> list[Result]:
    numbers = iter(range(batches))
    working: dict[Future[Result], LaneProcess] = {}
    results: list[Result] = []
    for lane in lanes * QUEUED:
        if (number := next(numbers, None)) is not None:
            working[lane.submit(_batch(number))] = lane
    while working:
        finished, _ = wait(working, return_when=FIRST_COMPLETED)
        for future in finished:
            lane = working.pop(future)
            results.append(future.result())
            if (number := next(numbers, None)) is not None:
                working[lane.submit(_batch(number))] = lane
    return results
