"""The command ``replay-requests``: vLLM's own cache manager serves random requests on the plans of cases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.cli_common import Deadline, JsonFlag, StoreFlag, chosen_cases, out, planners_at, print_json
from fuzz.planners.address import UNPATCHED
from fuzz.planners.process import CASE_SECONDS
from fuzz.planners.workload import MAX_TURNS
from fuzz.replay.requests import CHECKS, RequestReplay, replay_requests, severity_of
from fuzz.replay.requests.drawing import TURNS
from fuzz.store import DEFAULT_FOLDER, Store

RESULTS = ("CLEAN", "QUALITY", "BROKEN", "SKIPPED", "ERROR")
STYLES = {"CLEAN": "green", "QUALITY": "yellow", "BROKEN": "bold red", "SKIPPED": "dim", "ERROR": "bold magenta"}


class RequestReport(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz replay-requests --json`` prints."""

    seed: int
    steps: int
    cases: tuple[RequestReplay, ...]
    counts: dict[str, int]


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command("replay-requests")(replay_requests_command)


def replay_requests_command(
    what: Annotated[str, typer.Argument(help="A case id, a case file, or all (stored findings and corpus).")],
    planner: Annotated[list[str] | None, typer.Option(help="Address; several times for more.")] = None,
    steps: Annotated[int, typer.Option(min=1, max=MAX_TURNS, help="Scheduler steps of each workload.")] = TURNS,
    seed: Annotated[int, typer.Option(min=0, help="Where drawing workloads starts.")] = 0,
    deadline: Deadline = CASE_SECONDS,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Serve a random request workload on each plan with vLLM's own cache manager, checking after every step."""
    chosen = chosen_cases(what, Store(store))
    with planners_at(planner or [UNPATCHED], deadline) as planners:
        report = summarise(replay_requests(planners, chosen, seed, steps), seed, steps)
    if json:
        print_json(report)
    else:
        show(report, out())
    raise typer.Exit(1 if report.counts["BROKEN"] else 3 if report.counts["ERROR"] else 0)


def summarise(replays: Iterable[RequestReplay], seed: int, steps: int) -> RequestReport:
    """All results, counted."""
    cases = tuple(replays)
    counts = {result: sum(one.result == result for one in cases) for result in RESULTS}
    return RequestReport(seed=seed, steps=steps, cases=cases, counts=counts)


def show(report: RequestReport, console: Console) -> None:
    """One line a case, what was broken below it, and the counts."""
    for one in report.cases:
        served = one.served
        numbers = (
            f"{served.turns} steps, {served.tokens:,} tokens, {served.hit_tokens:,} of a hit, "
            f"{served.refusals} refusals, {len(served.probes)} pools"
            if served is not None and served.turns
            else ""
        )
        said = ": ".join(part for part in (numbers, one.reason) if part)
        console.print(
            f"[{STYLES[one.result]}]{one.result:<8}[/] {one.id} {escape(one.name)} [dim]{escape(one.planner)}[/] "
            f"{escape(said)}"
        )
        for breach, fingerprint in zip(one.breaches, one.fingerprints, strict=True):
            console.print(f"    [bold]{breach.law}[/] {breach.path} [dim]{fingerprint}[/] {escape(breach.detail)}")
            console.print(f"    [dim]{CHECKS[breach.law].text} ({severity_of(breach)})[/]")
    counted = ", ".join(f"{count} {result}" for result, count in report.counts.items() if count)
    console.print(f"{len(report.cases)} cases: {counted or 'nothing'}; workload seed {report.seed}")
    if report.counts["BROKEN"]:
        console.print("Serve one again with `kvfuzz replay-requests <id>`.")
