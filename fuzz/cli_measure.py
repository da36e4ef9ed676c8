"""The commands that measure kvfuzz itself: ``stats`` and ``bench``."""

from __future__ import annotations

from typing import Annotated

import typer
from msgspec import structs

from fuzz.bench import run_bench, show_bench
from fuzz.bench_lanes import scaling
from fuzz.cli_common import (
    JsonFlag,
    Patched,
    Unpatched,
    cores,
    err,
    open_pair,
    out,
    planners_at,
    print_json,
)
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.stats import render_stats, run_stats


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command()(stats)
    app.command()(bench)


def stats(
    cases: Annotated[int, typer.Option(min=1, help="How many cases to draw.")] = 3000,
    seed: Annotated[int, typer.Option(min=0, help="Where drawing starts.")] = 0,
    planner: Annotated[
        list[str] | None, typer.Option(help="Address; several times for more. None: drawing only.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Show what the strategies draw, which branches of the planner that reaches, and how good its plans are."""
    with planners_at(planner or []) as planners:
        found = run_stats(cases, seed, planners)
    if json:
        print_json(found)
    else:
        render_stats(found, out())


def bench(
    unpatched: Unpatched = "installed",
    patched: Patched = "installed+isolate",
    cases: Annotated[int, typer.Option(min=48, help="How many cases to time.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Where drawing starts.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Measure what a case costs, and where, against the planner calls in the same run."""
    pair = open_pair(unpatched, patched, None, CASE_SECONDS, MEMORY_BYTES / 2**30)
    err().print(f"timing {cases:,} cases through both planners …")
    try:
        found = run_bench(pair, cases, seed)
    finally:
        pair.close()
    jobs = tuple(count for count in (1, 2, 4, 8, 16) if count <= cores())
    err().print(f"timing campaigns with {', '.join(map(str, jobs))} cores …")
    lanes = scaling(pair.unpatched.launch, pair.patched.launch, pair.contract, jobs, cases)
    found = structs.replace(found, lanes=tuple(lanes))
    if json:
        print_json(found)
    else:
        show_bench(found, out())
