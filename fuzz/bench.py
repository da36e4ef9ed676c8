"""Measures what a case costs, and where: CPU, as ratios in one run.

The planner calls are the unit: everything else (drawing, the pipes, the reference, the laws, comparing) is set
against the CPU that both planners spend inside vLLM in the same run, on the same cases.
"""

from __future__ import annotations

import math
import os
import platform
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from rich.console import Console
from rich.table import Table

from fuzz.bench_lanes import Lanes
from fuzz.campaign import BATCH
from fuzz.pair import Judged, Pair, PlannerInfo
from fuzz.planners.process import Planner, Question
from fuzz.replay.memory.bench import ReplayCost, replay_cost
from fuzz.replay.requests.asking import workload_seconds
from fuzz.ruling import ruling_of
from fuzz.strategies import draw_case
from oracles.case import Case, FullSpec, Layer, MambaSpec, Settings, SlidingWindowSpec, Spec, Worker, build_case
from oracles.law import Evidence
from oracles.laws import broken_laws
from oracles.plan import Plan, Planned
from oracles.reference import compare_with, expected_plan

T = TypeVar("T")

TYPICAL_LAYERS = range(30, 61)
"""The layer counts by which generation is timed: those of published models."""

SIZES = (10, 30, 100, 300, 1000)
"""Layers of the scaling cases (DESIGN 12)."""

REPEATS = 5

SMALL = 300
"""Plans that are painted for the figures of memory replay."""


class Row(Struct, frozen=True, kw_only=True):
    """One part of the work: CPU milliseconds a case, and that as a multiple of the planner calls."""

    part: str
    cpu_ms: float
    ratio: float


class Size(Struct, frozen=True, kw_only=True):
    """One scaling case: CPU milliseconds of one planner call, and of everything of ours about it."""

    layers: int
    planner_ms: float
    ours_ms: float


class Bench(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz bench --json`` prints. ``cases_per_second`` is by the wall clock, all processes together."""

    cases: int
    seed: int
    layers_per_case: float
    generated_per_second: float
    generated_typical_per_second: float
    cases_per_second: float
    cpu_ratio: float
    rows: tuple[Row, ...]
    sizes: tuple[Size, ...]
    planner_exponent: float
    our_exponent: float
    lanes: tuple[Lanes, ...]
    replay: ReplayCost
    workload_seconds: float
    planners: tuple[PlannerInfo, ...]
    machine: str


def cpu_of(work: Callable[[], T]) -> tuple[T, float]:
    """The result of ``work`` and the CPU seconds this thread spent on it."""
    started = time.thread_time()
    result = work()
    return result, time.thread_time() - started


def run_bench(pair: Pair, cases: int, seed: int) -> Bench:
    """Times ``cases`` drawn cases through a started pair, part by part. Raises PlannerError."""
    drawn, drawing = cpu_of(lambda: [draw_case(random.Random(f"bench {seed} {at}")) for at in range(cases)])
    pair.start()
    list(pair.collect(pair.submit(drawn[:BATCH])))  # warm
    before = time.process_time(), pair.unpatched.cpu_seconds() + pair.patched.cpu_seconds()
    begun = time.perf_counter()
    pending = [pair.submit(drawn[at : at + BATCH]) for at in range(0, len(drawn), BATCH)]
    judged = [one for batch in pending for one in pair.collect(batch)]
    wall = time.perf_counter() - begun
    judge_cpu = time.process_time() - before[0]
    workers_cpu = pair.unpatched.cpu_seconds() + pair.patched.cpu_seconds() - before[1]
    planner_cpu = sum(one.planner_seconds for one in judged)
    parts = {
        "drawing": drawing,
        "planner calls (both, with parts)": planner_cpu,
        "workers besides vLLM (specs, plans, pipes)": workers_cpu - planner_cpu,
        "judging (pipes, reference, laws, comparison)": judge_cpu,
    }
    sizes = tuple(_scaling(pair, layers) for layers in SIZES)
    return Bench(
        cases=cases,
        seed=seed,
        layers_per_case=round(sum(len(case.layers) for case in drawn) / cases, 1),
        generated_per_second=round(cases / drawing),
        generated_typical_per_second=round(_typical_rate(seed)),
        cases_per_second=round(cases / wall, 1),
        cpu_ratio=round(sum(parts.values()) / planner_cpu, 2),
        rows=tuple(
            Row(part=name, cpu_ms=round(1000 * cpu / cases, 3), ratio=round(cpu / planner_cpu, 3))
            for name, cpu in parts.items()
        ),
        sizes=sizes,
        planner_exponent=_exponent([(one.layers, one.planner_ms) for one in sizes]),
        our_exponent=_exponent([(one.layers, one.ours_ms) for one in sizes]),
        lanes=(),
        replay=replay_cost(_planned(judged)[:SMALL]),
        workload_seconds=round(workload_seconds(pair.unpatched), 3),
        planners=pair.infos(),
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    )


def _planned(judged: Sequence[Judged]) -> list[tuple[Case, Plan]]:
    return [(one.case, one.patched.plan) for one in judged if isinstance(one.patched, Planned)]


def _typical_rate(seed: int) -> float:
    """Cases of 30 to 60 layers drawn per CPU second; the time of the others drawn on the way counts."""
    source = random.Random(f"typical {seed}")
    found = 0
    started = time.thread_time()
    while found < 300:
        found += len(draw_case(source).layers) in TYPICAL_LAYERS
    return found / (time.thread_time() - started)


def hybrid(layers: int) -> Case:
    """A model of three kinds in a repeating pattern, of any size."""
    full = FullSpec(block_size=16, num_kv_heads=8, head_size=128)
    window = SlidingWindowSpec(block_size=16, num_kv_heads=4, head_size=128, sliding_window=1024)
    state = MambaSpec(block_size=8192, shapes=((8192,),), dtypes=("float32",))
    pattern: tuple[Spec, ...] = (state, window, state, full, window)
    memory = 64 * 2**20 * layers
    return build_case(
        [(Layer(name=f"model.layers.{at}", spec=0), pattern[at % len(pattern)]) for at in range(layers)],
        Settings(layout="BLNHC", workers=(Worker(memory=memory),)),
    )


def _scaling(pair: Pair, layers: int) -> Size:
    case = hybrid(layers)
    planner: Planner = pair.unpatched
    rules = ruling_of(planner).rules
    answers = planner.ask([Question(case)] * REPEATS)
    outcome = answers[-1].outcome
    ours = []
    for _ in range(REPEATS):
        _, cpu = cpu_of(lambda: _judge_once(case, outcome, rules))
        ours.append(cpu)
    return Size(
        layers=layers,
        planner_ms=round(1000 * min(a.seconds for a in answers), 3),
        ours_ms=round(1000 * min(ours), 3),
    )


def _judge_once(case: Case, outcome: Any, rules: Any) -> None:
    broken_laws(Evidence(case=case, contract="native", outcome=outcome))
    if rules is not None:
        compare_with(expected_plan(case, rules, "native"), outcome)


def _exponent(points: Sequence[tuple[int, float]]) -> float:
    """The slope of cost over layers in a log-log plot, by least squares over the sizes from 30 up: smaller ones
    show fixed costs.
    """
    logs = [(math.log(layers), math.log(cost)) for layers, cost in points if layers >= 30]
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    return round(sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs), 2)


def show_bench(bench: Bench, console: Console) -> None:
    """The measurements as text."""
    console.print(f"{bench.cases:,} cases of {bench.layers_per_case:g} layers, seed {bench.seed}; {bench.machine}")
    console.print(
        f"drawing alone: {bench.generated_per_second:,} cases/s of CPU; of 30 to 60 layers "
        f"{bench.generated_typical_per_second:,}/s"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column, justify in (("part", "left"), ("CPU ms a case", "right"), ("× planner calls", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for row in bench.rows:
        table.add_row(row.part, f"{row.cpu_ms:.2f}", f"{row.ratio:.2f}")
    console.print(table)
    console.print(
        f"CPU of a differential case: {bench.cpu_ratio:.2f} × that of its planner calls; "
        f"{bench.cases_per_second:.0f} cases/s by the clock"
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("layers", "planner ms", "ours ms"):
        table.add_column(column, justify="right")
    for size in bench.sizes:
        table.add_row(f"{size.layers:,}", f"{size.planner_ms:.2f}", f"{size.ours_ms:.2f}")
    console.print(table)
    console.print(
        f"growth from 30 layers up: planner layers^{bench.planner_exponent:g}, ours layers^{bench.our_exponent:g}"
    )
    for lanes in bench.lanes:
        console.print(
            f"campaign with -j {lanes.jobs}: {lanes.cases_per_second:.0f} cases/s, {lanes.speedup:.2f} × -j 1; "
            f"a batch of {BATCH} costs the engine {lanes.engine_ms:.2f} ms, {lanes.bytes_out:,} bytes out, "
            f"{lanes.bytes_back:,} back"
        )
    replay = bench.replay
    console.print(
        f"memory replay of {replay.plans} plans: median {replay.replay_ms:.2f} ms, arithmetic "
        f"{replay.arithmetic_ms:.2f} ms; {replay.big_pools} pools of 6 GiB, sparse: "
        f"{replay.big_seconds:.1f} s, {replay.big_peak_bytes >> 20} MiB"
    )
    console.print(f"a workload of 100 steps served: {bench.workload_seconds:.2f} s of CPU")
