"""The command ``kvfuzz``. Exit codes: 0 no finding · 1 finding · 2 usage or set-up · 3 infrastructure."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer
from msgspec import structs

from fuzz import cli_corpus, cli_findings, cli_harvest, cli_measure, cli_replay, cli_requests, cli_run, cli_score
from fuzz.cli_common import (
    ContractFlag,
    Deadline,
    Failure,
    GateFlag,
    JsonFlag,
    KnownFlag,
    MemoryGiB,
    StoreFlag,
    chosen_cases,
    err,
    find_case,
    known_findings,
    open_pair,
    out,
    planners_at,
    print_failure,
    print_json,
)
from fuzz.corpus import CorpusError
from fuzz.doctor import examine, show_examined
from fuzz.known import KnownError
from fuzz.planners.address import PATCHED, UNPATCHED, AddressError
from fuzz.planners.fetch import FetchError
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES, PlannerError, Question, UnusableEntry
from fuzz.planners.trees import read_config
from fuzz.replay.requests import CHECKS
from fuzz.replay_cases import paint_on_device, replay_all, show_painted, show_replayed
from fuzz.report import plans
from fuzz.report.consumer import ReportError
from fuzz.report.summary import NO_LAW
from fuzz.store import DEFAULT_FOLDER, Store
from oracles.case import CaseError, json_schema
from oracles.laws import LAWS

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich",
    help="Differential fuzzing of vLLM's KV-cache planner. Start with `kvfuzz run`.",
)  # fmt: skip


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"kvfuzz {version('kvfuzz')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before a command."""


@app.command()
def plan(
    file: Annotated[str, typer.Argument(help="A case file, a case id, or - for standard input.")],
    planner: Annotated[list[str] | None, typer.Option(help="Address; give it several times to compare.")] = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = MEMORY_BYTES / 2**30,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Plan one case with each planner and show the groups side by side."""
    case = find_case(file, Store(store))
    with planners_at(planner or [UNPATCHED, PATCHED], deadline, memory_gib) as planners:
        waiting = [(one, one.submit([Question(case)])) for one in planners]
        results = [
            plans.Planned(
                address=one.address, revision=one.launch.revision, hello=one.hello(),
                outcome=answer.result()[0].outcome,
            )
            for one, answer in waiting
        ]  # fmt: skip
    if json:
        print_json(plans.as_json(case, results))
        return
    plans.show_case(case, out())
    plans.show_plans(case, results, out())


@app.command()
def replay(
    what: Annotated[str, typer.Argument(help="A case id, a case file, or all (stored findings and corpus).")],
    unpatched: cli_findings.Before = None,
    patched: cli_findings.After = None,
    contract: ContractFlag = None,
    gate: GateFlag = False,
    known_files: KnownFlag = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Also allocate the patched planner's pools there and paint them, one plan a feature tuple."),
    ] = None,
    budget_s: Annotated[float, typer.Option(min=0, help="Seconds for the pools on the device.")] = 200.0,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = MEMORY_BYTES / 2**30,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Ask both planners again: FIXED when the patched planner keeps every law, FAILED when not, ERROR otherwise."""
    place = Store(store)
    chosen = chosen_cases(what, place)
    if what != "all":
        about = cli_findings.subject(what, place, None, unpatched, patched, contract)
        unpatched, patched, contract = about.unpatched, about.patched, about.contract
    pair = open_pair(
        unpatched or cli_findings.UNPATCHED, patched or cli_findings.PATCHED, contract, deadline, memory_gib
    )
    known = known_findings(known_files)
    try:
        pair.start()
        served = {record.id for record in place.records() if record.finding.law in CHECKS}
        report = replay_all(
            pair, chosen, known, gate=gate,
            serves=lambda name: what != "all" or name.startswith("requests/") or name in served,
        )  # fmt: skip
        for (_, case), one in zip(chosen, report.cases, strict=True):
            for finding in one.failing:
                place.keep_finding(case, finding, pair.contract, pair.unpatched.address, pair.patched.address)
        if device is not None:
            clean = {one.id for one in report.cases if one.result == "FIXED"}
            painted = paint_on_device(pair.patched, [case for _, case in chosen], clean, device, budget_s)
            report = structs.replace(report, device=painted)
    finally:
        pair.close()
    if json:
        print_json(report)
    else:
        show_replayed(report, out(), details=what != "all")
        if report.device is not None:
            show_painted(report.device, out())
    raise typer.Exit(1 if report.failed else 3 if report.errors else 0)


@app.command()
def doctor(
    planner: Annotated[list[str] | None, typer.Option(help="Address to examine; several times for more.")] = None,
    json: JsonFlag = False,
) -> None:
    """Start each planner and tell what it is, what it knows, and what to do when it does not start."""
    config = read_config(Path.cwd())
    addresses = planner or ["installed", "installed+isolate", *sorted(config.planners)]
    report = examine(addresses, config)
    if json:
        print_json(report)
    else:
        show_examined(report, out())
    raise typer.Exit(0 if report.healthy else 3)


@app.command()
def schema(json: JsonFlag = True) -> None:
    """Print the JSON Schema of a case file."""
    del json  # a schema is JSON either way; the flag is there because every command takes it
    print_json(json_schema())


@app.command()
def laws(json: JsonFlag = False) -> None:
    """List what is checked: laws of every correct plan, checks of served requests (Q), comparisons; and why."""
    rows = [{"name": x.name, "text": x.text, "reason": x.reason, "severity": x.severity} for x in LAWS.values()]
    rows += [{"name": x.name, "text": x.text, "reason": x.reason, "severity": x.severity} for x in CHECKS.values()]
    rows += [{"name": name, "text": text, "reason": why, "severity": "fault"} for name, (text, why) in NO_LAW.items()]
    if json:
        print_json({"laws": rows})
        return
    for row in rows:
        out().print(f"[bold]{row['name']}[/] {row['text']}\n    [dim]{row['reason']}[/]")


cli_run.register(app)
cli_corpus.register(app)
cli_findings.register(app)
cli_harvest.register(app)
cli_measure.register(app)
cli_replay.register(app)
cli_requests.register(app)
cli_score.register(app)


def fail(message: str, code: int, hint: str = "") -> NoReturn:
    """Prints an error, as JSON too where that was asked for, and exits."""
    from rich.markup import escape

    print_failure(message, code)
    err().print(f"[bold red]kvfuzz:[/] {escape(message)}{hint}", markup=True, soft_wrap=True)
    raise SystemExit(code)


def main() -> None:
    """Entry point of the console script."""
    try:
        app(standalone_mode=True)
    except (CaseError, AddressError, CorpusError, KnownError, FetchError, UnusableEntry) as error:
        fail(str(error), 2)
    except Failure as error:
        fail(str(error), error.code)
    except ReportError as error:
        fail(str(error), 3)
    except PlannerError as error:
        fail(str(error), 3, "\n[dim]`kvfuzz doctor` examines each planner.[/]")
    except BrokenPipeError:
        os._exit(0)  # the reader of our output has gone
    except SystemExit as error:
        if error.code == 2:
            print_failure("the command line cannot be read; standard error says why", 2)
        raise
    except OSError as error:
        fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 2)


if __name__ == "__main__":
    main()
