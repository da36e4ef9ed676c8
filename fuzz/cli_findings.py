"""The commands that work on one finding: ``minimise``, ``export``, ``explain`` and ``bisect``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct, structs
from rich.console import Console
from rich.markup import escape

from fuzz.cli_common import (
    ContractFlag,
    Deadline,
    Failure,
    JsonFlag,
    MemoryGiB,
    StoreFlag,
    err,
    find_case,
    known_findings,
    open_pair,
    out,
    print_json,
    store_argument,
    to_contract,
)
from fuzz.export.diagnosis import Diagnosis, NothingFound, diagnose_found, find_again, telling
from fuzz.minimise import Better, Minimal, Minimiser, NotShown, Unstable
from fuzz.pair import Judged, Pair
from fuzz.planners.address import as_options
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import read_config
from fuzz.store import DEFAULT_FOLDER, Record, Store
from oracles.case import Case, case_id, dump_case
from oracles.compare import Finding
from oracles.plan import owner_of

What = Annotated[str, typer.Argument(help="A case id, or a case file.")]
Fingerprint = Annotated[str | None, typer.Option(help="Which finding; default: the gravest one.")]
Before = Annotated[
    str | None, typer.Option("--unpatched", help="Address; default: the one that found it, or installed.")
]
After = Annotated[
    str | None, typer.Option("--patched", help="Address; default: the one that found it, or installed+isolate.")
]
UNPATCHED, PATCHED = "installed", "installed+isolate"
"""The pair that is asked where neither a stored finding nor the user names another."""

GIB = MEMORY_BYTES / 2**30


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    for command in (minimise, export, explain, bisect):
        app.command()(command)


class Subject(Struct, frozen=True, kw_only=True):
    """What a command is about: a case, perhaps which finding of it, and the planners to ask. ``named``: the user chose
    the finding.
    """

    case: Case
    fingerprint: str | None
    named: bool
    unpatched: str
    patched: str
    contract: str | None
    store: Path

    @property
    def arguments(self) -> str:
        """The options that ask the same planners again."""
        return as_options(self.unpatched, self.patched) + store_argument(self.store)


def subject(
    what: str, store: Store, fingerprint: str | None, unpatched: str | None, patched: str | None, contract: str | None
) -> Subject:
    """The case named, with the planners of its stored finding unless others are named. Raises CaseError."""
    case = find_case(what, store)
    records = [r for r in store.records(case_id(case)) if fingerprint in (None, r.finding.fingerprint)]
    if len(records) > 1:
        # What someone would name a case for: never a known fault while there is another.
        known = known_findings(None)
        records.sort(key=lambda r: (known.covers(r.finding.fingerprint, r.finding.verdict), telling(r.finding)))
    held: Record | None = records[0] if records else None
    # Other planners than those that found it promise what they promise.
    same = held is not None and unpatched in (None, held.unpatched) and patched in (None, held.patched)
    return Subject(
        case=case, fingerprint=fingerprint or (held.finding.fingerprint if held else None),
        named=fingerprint is not None,
        unpatched=unpatched or (held.unpatched if held else UNPATCHED),
        patched=patched or (held.patched if held else PATCHED),
        contract=contract or (held.contract if held is not None and same else None),
        store=store.folder,
    )  # fmt: skip


def pair_of(about: Subject, deadline: float, memory_gib: float) -> Pair:
    """Both planners, started. Raises PlannerError."""
    pair = open_pair(about.unpatched, about.patched, about.contract, deadline, memory_gib)
    # A finding named by its fingerprint may be one that only serving requests shows; else they cost time for nothing.
    pair.serves = about.fingerprint is not None
    try:
        pair.start()
    except BaseException:
        pair.close()
        raise
    return pair


def chosen(pair: Pair, about: Subject) -> tuple[Judged, Finding]:
    """The finding asked for, by asking the case once, and what was answered. Raises Failure."""
    try:
        return find_again(pair, about.case, about.fingerprint)
    except NothingFound as error:
        raise Failure(str(error), 2) from None


def minimise(
    what: What,
    fingerprint: Fingerprint = None,
    unpatched: Before = None,
    patched: After = None,
    contract: ContractFlag = None,
    seconds: Annotated[float, typer.Option(min=1, help="Stop after this long with the best so far.")] = 60.0,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = GIB,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Find the least case that shows the same finding, and the nearest case that passes."""
    place = Store(store)
    about = subject(what, place, fingerprint, unpatched, patched, contract)
    console = err() if json else out()
    pair = pair_of(about, deadline, memory_gib)
    try:
        search = started(pair, about, seconds)
        shrink(search, pair, place, console)
    finally:
        pair.close()
    found = search.minimal()
    if json:
        print_json(as_json(about.case, found))
    else:
        show_minimal(about, found, place, console)


def started(pair: Pair, about: Subject, seconds: float) -> Minimiser:
    """A search that has seen its finding on the untouched case. Raises Failure."""
    wanted = about.fingerprint or chosen(pair, about)[1].fingerprint
    try:
        return Minimiser(pair, about.case, wanted, seconds=seconds)
    except NotShown as error:
        raise Failure(
            f"{error}; name another finding by --fingerprint, or the planners by --unpatched and --patched", 2
        ) from None
    except Unstable as error:
        raise Failure(f"{error}: an unstable case is not minimised; look at it with `kvfuzz plan`", 1) from None


def shrink(search: Minimiser, pair: Pair, store: Store, console: Console) -> None:
    """Runs the search; the best so far is always stored, and an interrupt ends it there."""
    held: tuple[str, str] | None = None
    before = case_id(search.case)
    try:
        for better in search.run():
            held = keep_better(better, pair, store, held, before)
            console.print(
                f"  {len(better.case.layers)} layers, {len(better.case.specs)} specs after {better.asked} cases "
                f"({better.by}, {better.seconds:.1f} s)"
            )
    except KeyboardInterrupt:
        console.print("  interrupted; this is the best so far")


def keep_better(
    better: Better, pair: Pair, store: Store, held: tuple[str, str] | None, original: str
) -> tuple[str, str]:
    """Stores a smaller case and forgets the one it replaces, unless that was the user's."""
    store.keep_finding(better.case, better.finding, pair.contract, pair.unpatched.address, pair.patched.address)
    now = case_id(better.case), better.finding.fingerprint
    if held is not None and held != now and held[0] != original:
        store.drop_finding(*held)
    return now


def as_json(case: Case, found: Minimal) -> dict[str, Any]:
    """What ``kvfuzz minimise --json`` prints."""
    neighbour = found.neighbour
    return {
        "id": case_id(found.case), "from": case_id(case), "layers": len(found.case.layers), "case": found.case,
        "finding": found.finding, "complete": found.complete, "asked": found.asked, "seconds": found.seconds,
        "neighbour": None if neighbour is None else {"words": neighbour.words, "case": neighbour.case},
    }  # fmt: skip


def show_minimal(about: Subject, found: Minimal, store: Store, console: Console) -> None:
    """The least case for a person."""
    store.keep_case(found.case)
    console.print(dump_case(found.case).decode(), markup=False, soft_wrap=True, end="")
    end = "no pass makes it smaller" if found.complete else "not finished: give it more --seconds"
    console.print(
        f"{len(about.case.layers)} → {len(found.case.layers)} layers, {found.asked} cases asked in "
        f"{found.seconds:.1f} s; {end}"
    )
    console.print(f"{found.finding.law} {found.finding.fingerprint}: {escape(found.finding.summary)}", soft_wrap=True)
    if found.neighbour is not None:
        console.print(f"passes with {escape(found.neighbour.words)}", soft_wrap=True)
    console.print(f"kvfuzz replay {case_id(found.case)}{about.arguments}", markup=False, soft_wrap=True)


def diagnosed(pair: Pair, about: Subject, *, with_neighbour: bool, for_script: bool = False) -> Diagnosis:
    """A diagnosis of the finding. Raises Failure."""
    judged, finding = chosen(pair, about)
    others = [f.fingerprint for f in judged.verdict.findings if f.fingerprint != finding.fingerprint]
    if others and not about.named:
        err().print(
            f"[dim]this is {finding.law} {finding.fingerprint}; the case also shows {', '.join(others)}: choose with "
            "--fingerprint[/]",
            soft_wrap=True,
        )
    neighbour = None
    if with_neighbour:
        try:
            neighbour = Minimiser(pair, about.case, finding.fingerprint, law=finding.law).passing_neighbour()
        except (NotShown, Unstable):
            neighbour = None  # told by the finding itself; an unstable case has no neighbour to trust
    try:
        return diagnose_found(pair, judged, finding, neighbour, for_script=for_script)
    except NothingFound as error:
        raise Failure(str(error), 2) from None


def export(
    what: What,
    as_: Annotated[str, typer.Option("--as", help="script, pytest, issue or diff-case.")] = "script",
    to: Annotated[Path | None, typer.Option("--to", help="File to write; default: standard output.")] = None,
    fingerprint: Fingerprint = None,
    unpatched: Before = None,
    patched: After = None,
    contract: ContractFlag = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = GIB,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Write a finding as a script that needs vLLM only, a pytest file, issue text, or the diff to what passes."""
    from fuzz.export.render import FORMS, has_script
    from fuzz.export.render import export as rendered

    form = next((one for one in FORMS if one == as_), None)
    if form is None:
        raise Failure(f"--as {as_!r}: is not a form; choose {', '.join(FORMS)}", 2)
    about = subject(what, Store(store), fingerprint, unpatched, patched, contract)
    pair = pair_of(about, deadline, memory_gib)
    try:
        with_neighbour, for_script = form in ("issue", "diff-case"), form != "diff-case"
        diagnosis = diagnosed(pair, about, with_neighbour=with_neighbour, for_script=for_script)
        if (owner := owner_of(diagnosis.obtained)) and form != "diff-case":
            # What is exported calls vLLM's own rules; without the owner it would show another plan.
            raise Failure(f"--as {form}: {owner} groups this case, which only kvfuzz replay can ask again", 2)
        if form in ("script", "pytest") and not has_script(diagnosis):
            remedy = "`kvfuzz replay` asks again, and --as issue tells of it"
            raise Failure(f"--as {form}: {diagnosis.no_script}; {remedy}", 2)
        text = rendered(diagnosis, form)
    finally:
        pair.close()
    if not text:
        raise Failure(f"{case_id(about.case)}: no passing neighbour was found; minimise the case first", 1)
    if to is not None:
        to.write_text(text)
    if json:
        print_json({"form": form, "file": None if to is None else str(to), "text": text})
    elif to is None:
        sys.stdout.write(text)
    else:
        err().print(f"written to {escape(str(to))}")


def explain(
    what: What,
    fingerprint: Fingerprint = None,
    unpatched: Before = None,
    patched: After = None,
    contract: ContractFlag = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = GIB,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Tell which rules each planner took, where they part, and what would have to change for the case to pass."""
    from fuzz.explain import explain as explained
    from fuzz.explain import show_explanation

    about = subject(what, Store(store), fingerprint, unpatched, patched, contract)
    pair = pair_of(about, deadline, memory_gib)
    try:
        told = explained(pair, diagnosed(pair, about, with_neighbour=True))
    finally:
        pair.close()
    if json:
        print_json(told)
    else:
        show_explanation(told, about.case, out())


def target_of(about: Subject, store: Store, deadline: float, memory_gib: float) -> Finding | None:
    """The finding to follow: the stored one, or the one named; None when any will do. Raises Failure."""
    if about.fingerprint is None:
        return None
    for record in store.records(case_id(about.case)):
        if record.finding.fingerprint == about.fingerprint:
            return record.finding
    pair = pair_of(about, deadline, memory_gib)
    try:
        return chosen(pair, about)[1]
    finally:
        pair.close()


def bisect(
    what: What,
    good: Annotated[str, typer.Option(help="Address without the fault: pypi:VERSION or git:DIR@REV.")],
    bad: Annotated[str, typer.Option(help="Address with the fault.")],
    fingerprint: Annotated[str | None, typer.Option(help="Which finding; default: the stored one, else any.")] = None,
    contract: ContractFlag = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = GIB,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Name the first version that has the fault; for a fault that was mended, give the later version as good."""
    from fuzz.bisect import BisectError, asker, candidates, is_mended, search

    found_by = subject(what, Store(store), fingerprint, None, None, contract)
    about = structs.replace(found_by, unpatched=bad, patched=bad)
    console = err() if json else out()
    try:
        found = candidates(good, bad)
        console.print(f"{len(found)} versions from {escape(good)} to {escape(bad)}")
        ask = asker(
            about.case, target_of(about, Store(store), deadline, memory_gib), to_contract(about.contract),
            read_config(Path.cwd()), case_seconds=deadline, memory=int(memory_gib * 2**30),
        )  # fmt: skip

        def told(address: str) -> Any:
            probe = ask(address)
            console.print(f"  {escape(address)}: {probe.state} ({escape(probe.why)})", soft_wrap=True)
            return probe

        result = search(found, told)
    except BisectError as error:
        raise Failure(str(error), 2) from None
    if json:
        print_json(result)
        return
    skipped = f" ({', '.join(result.skipped_between)} could not be asked)" if result.skipped_between else ""
    bad_one, good_one = escape(result.first_bad), escape(result.last_good)
    if is_mended(good, bad):
        console.print(f"[bold]last bad: {bad_one}, gone in: {good_one}[/]{skipped}")
    else:
        console.print(f"[bold]first bad: {bad_one}[/], last good: {good_one}{skipped}")
