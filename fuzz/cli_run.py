"""The command ``run``."""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from msgspec import structs
from rich.console import Console

from fuzz.cli_common import (
    ContractFlag,
    Deadline,
    Failure,
    GateFlag,
    JsonFlag,
    KnownFlag,
    MemoryGiB,
    Patched,
    StoreFlag,
    Unpatched,
    cores,
    duration,
    err,
    known_findings,
    out,
    print_json,
    store_argument,
    to_contract,
)
from fuzz.corpus import Entry, corpus_folder, load_corpus
from fuzz.pair import Pair, choose_contract
from fuzz.planners.address import as_options
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import read_config
from fuzz.report.details import Detail
from fuzz.store import DEFAULT_FOLDER, Store

DEFAULT_SECONDS = 60.0

SAME_SIGNAL_SECONDS = 1.0
"""A terminal, a shell and `timeout` may each send the same signal on; that is no second wish."""


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(run)


def small_corpus() -> list[Entry]:
    """The corpus cases that every run asks first: all but the whole models, which take longer than a short run."""
    return [entry for entry in load_corpus(corpus_folder()) if not entry.name.startswith("models/")]


def run(
    unpatched: Unpatched = "installed",
    patched: Patched = "installed+isolate",
    time_: Annotated[str | None, typer.Option("--time", help="How long: 60s, 2m, 1h.")] = None,
    cases: Annotated[int | None, typer.Option(min=0, help="How many cases to draw.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Where drawing starts; random when not given.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, max=1024, help="Cores to use; all by default.")
    ] = None,
    contract: ContractFlag = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last run that did not end.")] = False,
    with_corpus: Annotated[bool, typer.Option("--corpus/--no-corpus", help="Ask the corpus first.")] = True,
    twins: Annotated[bool, typer.Option("--twins/--no-twins", help="Plan a sample under other hash seeds too.")] = True,
    canary: Annotated[bool, typer.Option("--canary/--no-canary", help="Plant a defect that the run must find.")] = True,
    requests: Annotated[
        bool, typer.Option("--requests/--no-requests", help="Serve requests on one plan in 64 and on the corpus's.")
    ] = True,
    minimise: Annotated[
        bool, typer.Option("--minimise/--no-minimise", help="Minimise the gravest findings at the end.")
    ] = True,
    ray: Annotated[str | None, typer.Option(help="Address of a Ray cluster to spread over; needs kvfuzz[ray].")] = None,
    gate: GateFlag = False,
    known_files: KnownFlag = None,
    report_to: Annotated[
        list[str] | None,
        typer.Option("--report", help="FORMAT=FILE: html, markdown, junit, sarif, ndjson; several times for more."),
    ] = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = MEMORY_BYTES / 2**30,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Draw cases, ask both planners, judge, and tell what was found."""
    from fuzz.campaign import run as campaign
    from fuzz.campaign.journal import Asking, Journal, ResumeError
    from fuzz.campaign.start import Means, open_launches, order_of
    from fuzz.minimise.after_run import with_minimal
    from fuzz.report import terminal
    from fuzz.report.choose import open_consumers, parse_reports
    from fuzz.report.consumer import closing, tee
    from fuzz.report.details import details_of
    from fuzz.report.summary import Summary

    specs = parse_reports(report_to or ())
    if json and any(spec.path is None for spec in specs):
        raise Failure("--report …=-: --json has standard output to itself; name a file", 2)
    known = known_findings(known_files)
    begun = time.monotonic()
    seconds = duration(time_) if time_ is not None else None
    if seconds == 0:
        raise Failure(f"--time {time_!r}: leaves no time to draw a case; --cases 0 asks the corpus alone", 2)
    place = Store(store)
    state = None
    if resume:
        if seed is not None or cases is not None:
            raise Failure("--resume: goes on with the run as it was begun; leave --seed and --cases out", 2)
        try:
            journal, state = Journal.last_unfinished(place)
        except ResumeError as error:
            raise Failure(str(error), 2) from None
        asking = state.asking if seconds is None else structs.replace(state.asking, seconds=state.seconds + seconds)
    else:
        asking = Asking(
            unpatched=unpatched, patched=patched, contract="native",
            seed=secrets.randbelow(2**32) if seed is None else seed,
            seconds=DEFAULT_SECONDS if seconds is None and cases is None else seconds,
            cases=cases, corpus=with_corpus, twins=twins, canary=canary, requests=requests, gate=gate,
            jobs=jobs or cores(),
        )  # fmt: skip
    launches = open_launches(asking, read_config(Path.cwd()))
    if state is None:
        asking = structs.replace(asking, contract=choose_contract(to_contract(contract), launches[1]))
        journal = Journal.new(place, asking.seed)
    console = err() if json or any(spec.path is None for spec in specs) else out()
    console.print(
        f"kvfuzz: comparing [bold]{asking.unpatched}[/] with [bold]{asking.patched}[/]; starting both planners …"
    )
    corpus = tuple(entry.case for entry in small_corpus()) if asking.corpus else ()
    means = Means(case_seconds=deadline, memory=int(memory_gib * 2**30), ray=ray)
    order = order_of(asking, launches, corpus, journal, means)

    def open_again() -> Pair:
        return Pair(*launches, asking.contract, case_seconds=means.case_seconds, memory=means.memory)

    def details(summary: Summary) -> Mapping[str, Detail]:
        findings = (*summary.open, *summary.fixed, *summary.listed)
        return details_of(open_again, findings, place)

    arguments = as_options(asking.unpatched, asking.patched, contract) + store_argument(store)
    consumers = open_consumers(specs, details, arguments)
    with interruptions(console) as interrupted, closing(consumers):
        events = campaign(order, place, known, journal, state=state, interrupted=interrupted)
        if minimise:
            events = with_minimal(events, open_again, place, interrupted)
        report = terminal.follow(tee(events, consumers), console, asking.seconds, asking.cases)
    if json:
        print_json(report)
    else:
        terminal.show_report(report, console, arguments)
        console.print(f"[dim]whole command: {time.monotonic() - begun:.1f} s[/]")
        if report.interrupted:
            console.print(f"Interrupted; `kvfuzz run --resume{store_argument(store)}` goes on.")
    raise typer.Exit(1 if report.failed else 3 if report.canary_survived or report.nothing_drawn else 0)


class _Interrupt:
    """Ends a run in order at the first signal, and at once at the second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._asked = False
        self._at = 0.0

    def __call__(self) -> bool:
        return self._asked

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """Takes a signal."""
        now = time.monotonic()
        if self._asked and now - self._at > SAME_SIGNAL_SECONDS:
            raise KeyboardInterrupt
        if self._asked:
            return
        self._asked, self._at = True, now
        self._console.print("  ending: what is in flight is judged first (once more ends at once)")


@contextlib.contextmanager
def interruptions(console: Console) -> Iterator[_Interrupt]:
    """For the time of the block, Ctrl-C and SIGTERM ask for an end in order instead of tearing the run down."""
    interrupt = _Interrupt(console)
    before = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
