"""The command ``replay-requests``: vLLM's own cache manager serves random requests on the plans of cases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.cli_common import (
    Deadline,
    Failure,
    JsonFlag,
    KnownFlag,
    StoreFlag,
    chosen_cases,
    known_findings,
    out,
    planners_at,
    print_json,
)
from fuzz.planners.address import UNPATCHED
from fuzz.planners.process import CASE_SECONDS, Planner
from fuzz.planners.workload import MAX_TURNS
from fuzz.replay.memory.select import drawn_cases
from fuzz.replay.requests import CHECKS, RequestReplay, replay_requests, severity_of
from fuzz.replay.requests.drawing import TURNS
from fuzz.replay.requests.tally import Fault, Tally, with_known
from fuzz.store import DEFAULT_FOLDER, Store
from fuzz.strategies import Shape, vocabulary_of
from oracles.case import Case, case_id

STYLES = {
    "CLEAN": "green", "QUALITY": "yellow", "KNOWN": "yellow", "UNSOUND": "yellow", "BROKEN": "bold red",
    "SKIPPED": "dim", "ERROR": "bold magenta",
}  # fmt: skip


class RequestReport(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz replay-requests --json`` prints. ``cases`` are those that were named; drawn ones are counted only.

    ``reasons`` counts why cases were not served, or not in full.
    """

    seed: int
    steps: int
    drawn: int
    draw_seed: int
    cases: tuple[RequestReplay, ...]
    faults: tuple[Fault, ...]
    counts: dict[str, int]
    reasons: dict[str, int]

    @property
    def exit_code(self) -> int:
        """1 for a fault that is not known, 3 for a case that could not be served."""
        return 1 if self.counts["BROKEN"] else 3 if self.counts["ERROR"] else 0


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command("replay-requests")(replay_requests_command)


def replay_requests_command(
    what: Annotated[
        str | None, typer.Argument(help="A case id, a case file, or all (stored findings and corpus).")
    ] = None,
    planner: Annotated[list[str] | None, typer.Option(help="Address; several times for more.")] = None,
    cases: Annotated[int, typer.Option(min=0, help="How many cases to draw.")] = 0,
    draw_seed: Annotated[int, typer.Option(min=0, help="Where drawing cases starts.")] = 0,
    steps: Annotated[int, typer.Option(min=1, max=MAX_TURNS, help="Scheduler steps of each workload.")] = TURNS,
    seed: Annotated[int, typer.Option(min=0, help="Where drawing workloads starts.")] = 0,
    known_files: KnownFlag = None,
    deadline: Deadline = CASE_SECONDS,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Serve a random request workload on each plan with vLLM's own cache manager, checking after every step."""
    if what is None and not cases:
        raise Failure("replay-requests: nothing to serve; name a case or all, or draw some by --cases N", 2)
    place, known = Store(store), known_findings(known_files)
    named = chosen_cases(what, place) if what is not None else []
    tally, told = Tally(known), []
    with planners_at(planner or [UNPATCHED], deadline) as planners:
        asked: dict[str, Case] = {}

        def source() -> Iterator[tuple[str, Case]]:
            for name, one in [*named, *drawn(planners, cases, draw_seed)]:
                asked[case_id(one)] = one
                yield name, one

        names = {name for name, _ in named}
        for replay in with_known(replay_requests(planners, source(), seed, steps), known):
            tally.add(replay, asked[replay.id])
            if replay.name in names:
                told.append(replay)
        contracts = {one.address: one.launch.contract or "native" for one in planners}
    for fault in tally.faults:
        place.keep_finding(
            tally.cases[fault.fingerprint], fault.finding, contracts[fault.planner], fault.planner, fault.planner
        )
    report = RequestReport(
        seed=seed, steps=steps, drawn=cases, draw_seed=draw_seed, cases=tuple(told), faults=tally.faults,
        counts=tally.counts, reasons=tally.reasons,
    )  # fmt: skip
    if json:
        print_json(report)
    else:
        show(report, out())
    raise typer.Exit(report.exit_code)


def drawn(planners: list[Planner], count: int, seed: int) -> Iterator[tuple[str, Case]]:
    """``count`` cases that all the planners can be told, the same as a run's of that seed. Raises PlannerError."""
    if count:
        shape = Shape(vocabulary=vocabulary_of(*(one.hello() for one in planners)))
        for number, one in enumerate(drawn_cases(seed, count, shape)):
            yield f"drawn {seed} {number}", one


def show(report: RequestReport, console: Console) -> None:
    """A line for each case that was named, one for each distinct fault where cases were drawn, and the counts."""
    for one in report.cases:
        show_case(one, console)
    if report.drawn:
        for fault in report.faults:
            style = STYLES["KNOWN" if fault.known else "QUALITY" if fault.severity == "quality" else "BROKEN"]
            word = "known" if fault.known else fault.severity
            console.print(
                f"[{style}]{word:<7}[/] {fault.law} {fault.path} [bold]{fault.fingerprint}[/] × {fault.seen}, "
                f"smallest {fault.id} [dim]{escape(fault.planner)}[/]: {escape(fault.summary)}", soft_wrap=True,
            )  # fmt: skip
    counted = ", ".join(f"{count} {result}" for result, count in report.counts.items() if count)
    total = sum(report.counts.values())
    drew = f"; {report.drawn} drawn from seed {report.draw_seed}" if report.drawn else ""
    console.print(f"{total} served: {counted or 'nothing'}{drew}; workload seed {report.seed}", soft_wrap=True)
    if report.drawn:
        for reason, count in sorted(report.reasons.items(), key=lambda item: -item[1])[:8]:
            console.print(f"[dim]{count:6} {escape(reason)}[/]", soft_wrap=True)
    if report.exit_code == 1:
        told = "Serve one again with `kvfuzz replay-requests <id>`; `kvfuzz minimise <id>` makes it small."
        console.print(told, soft_wrap=True)


def show_case(one: RequestReplay, console: Console) -> None:
    """One line, and what was broken below it."""
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
