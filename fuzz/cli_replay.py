"""The commands that replay plans with real memory: ``export-plans`` and ``replay-plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from fuzz.cli_common import Failure, JsonFlag, out, planners_at, print_json
from fuzz.corpus import corpus_folder, load_corpus
from fuzz.replay import device as script
from fuzz.replay.memory.pools import write_pools
from fuzz.replay.memory.select import drawn_cases, interesting, planned_pools
from fuzz.strategies import Shape, vocabulary_of


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command("export-plans")(export_plans)
    app.command("replay-plan")(replay_plan)


def export_plans(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, one pool a line.")],
    planner: Annotated[str, typer.Option(help="Address of the planner whose plans are written.")] = "installed",
    cases: Annotated[int, typer.Option(min=0, help="How many cases to draw.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Where drawing starts.")] = 0,
    with_corpus: Annotated[bool, typer.Option("--corpus/--no-corpus", help="Choose from the corpus too.")] = True,
    at_most: Annotated[int, typer.Option(min=1, max=5000, help="How many plans to write.")] = 100,
    json: JsonFlag = False,
) -> None:
    """Write plans for `kvfuzz replay-plan`, or for fuzz/replay/device.py alone on a machine with torch.

    One plan for each feature tuple, smallest first; a large pool is written as planned and once more with few blocks.
    """
    with planners_at([planner]) as (asked,):
        shape = Shape(vocabulary=vocabulary_of(asked.hello()))
        corpus = [entry.case for entry in load_corpus(corpus_folder())] if with_corpus else []
        chosen = interesting([*corpus, *drawn_cases(seed, cases, shape)])
        pools = planned_pools(asked, chosen, at_most)
    try:
        lines = write_pools(output, pools)
    except OSError as error:
        raise Failure(f"--output {output}: cannot be written ({error.strerror or error})", 2) from None
    if json:
        print_json({"file": str(output), "tuples": len(chosen), "plans": len({p.id for p in pools}), "pools": lines})
    else:
        out().print(f"{lines} pools of {len({p.id for p in pools})} plans in {escape(str(output))}")


def replay_plan(
    plans: Annotated[Path, typer.Argument(help="A file of `kvfuzz export-plans`.")],
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to allocate.")] = "cpu",
    cap_gib: Annotated[float, typer.Option(min=0.001, help="Largest pool, in GiB.")] = 8.0,
    budget_s: Annotated[float, typer.Option(min=0, help="Seconds for all pools.")] = 200.0,
    json: JsonFlag = False,
) -> None:
    """Allocate each pool, paint its pages through their strides, read them back, and compare with the arithmetic."""
    try:
        pools = script.read_pools(plans)
    except script.FileError as error:
        raise Failure(str(error), 2) from None
    results = list(script.replay(pools, device, cap_gib, budget_s))
    summary = results.pop()["summary"]
    if json:
        print_json({"pools": results, "summary": summary})
    else:
        _show(results, summary, out())
    raise typer.Exit(1 if any(one["result"] in script.FAILING for one in results) else 0)


def _show(results: list[dict[str, Any]], summary: dict[str, Any], console: Console) -> None:
    for one in results:
        if one["result"] not in script.FAILING:
            continue
        console.print(f"[bold red]{one['result']}[/] {one['id']} worker {one['worker']}", soft_wrap=True)
        for fault in one.get("found", ()):
            console.print(f"       {fault['check']} {escape(fault['detail'])}", soft_wrap=True)
        if one.get("reason"):
            console.print(f"       {escape(one['reason'])}", soft_wrap=True)
    if "no_device" in summary:
        console.print(f"skipped: {summary['no_device']} ({summary['skipped']} pools)")
        return
    counts = ", ".join(f"{summary[name]} {name}" for name in ("clean", "skipped", *script.FAILING) if name in summary)
    console.print(f"{counts}; {summary.get('device', 'no device')}, {summary['seconds']:g} s")
