"""The commands ``corpus stats``, ``merge``, ``prune`` and ``accept``."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs

from fuzz.cli_common import (
    Deadline,
    Failure,
    JsonFlag,
    MemoryGiB,
    StoreFlag,
    err,
    open_pair,
    out,
    print_json,
)
from fuzz.corpus import corpus_folder, corpus_stats, load_corpus, render_stats
from fuzz.corpus_edit import Acceptance, accept, merge, prune
from fuzz.known import label, read_all_known
from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Pair
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.replay.requests import CHECKS
from fuzz.store import DEFAULT_FOLDER, Record, Store
from oracles.case import Case, Provenance, shortlex
from oracles.compare import FAILING, Finding
from oracles.law import Contract

app = typer.Typer(no_args_is_help=True, help="Look at the corpus and change it.")

Target = Annotated[Path | None, typer.Option("--into", help="Corpus folder; default: the one that comes with kvfuzz.")]


def register(parent: typer.Typer) -> None:
    """Adds the group ``corpus``."""
    parent.add_typer(app, name="corpus")


@app.command("stats")
def stats_command(json: JsonFlag = False) -> None:
    """Count what the corpus holds: kinds, modes, layouts, sizes."""
    stats = corpus_stats(load_corpus(corpus_folder()))
    if json:
        print_json(stats)
    else:
        out().print(render_stats(stats))


@app.command("merge")
def merge_command(
    source: Annotated[Path, typer.Argument(help="Folder of case files, as a run grows it: .kvfuzz/corpus.")],
    into: Annotated[Path, typer.Option("--into", help="Folder to add them to.")],
    json: JsonFlag = False,
) -> None:
    """Add the cases of one folder to another that does not ask them yet."""
    merged = merge(source, into)
    if json:
        print_json(merged)
    else:
        out().print(f"{len(merged.added)} cases added to {into}, {merged.had} were there already", markup=False)


@app.command("prune")
def prune_command(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder of case files; default: the cases grown in the store.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Keep one least case for each feature tuple and for each fingerprint; remove the others."""
    place = Store(store)
    least: dict[str, Record] = {}
    for record in place.records():
        least.setdefault(record.finding.fingerprint, record)
    needed = frozenset(record.id for record in least.values())
    pruned = prune(folder or place.grown_folder, needed, remove=not dry_run)
    if json:
        print_json(pruned)
        return
    verb = "would be removed" if dry_run else "removed"
    out().print(f"{len(pruned.removed)} cases {verb}, {len(pruned.kept)} kept", markup=False)


@app.command("accept")
def accept_command(
    identity: Annotated[str, typer.Argument(help="The id of a stored finding's case, or all.")],
    reason: Annotated[str, typer.Option(help="Why it stands: a sentence.")],
    fingerprint: Annotated[str | None, typer.Option(help="Which finding of the case; default: all of them.")] = None,
    url: Annotated[str, typer.Option(help="Where it is discussed.")] = "",
    days: Annotated[int, typer.Option(min=1, max=3650, help="Look at it again after this many days.")] = 180,
    intended: Annotated[
        bool, typer.Option("--intended", help="It is a change made on purpose: a regression may be accepted so.")
    ] = False,
    new_only: Annotated[bool, typer.Option("--new-only", help="Pass over faults that are listed already.")] = False,
    into: Target = None,
    deadline: Deadline = CASE_SECONDS,
    memory_gib: MemoryGiB = MEMORY_BYTES / 2**30,
    store: StoreFlag = DEFAULT_FOLDER,
    json: JsonFlag = False,
) -> None:
    """Ask stored findings again and list those that stand as known: the case in regress/, the entry in known.toml."""
    place, folder = Store(store), into or corpus_folder()
    records = [
        record
        for record in place.records(None if identity == "all" else identity)
        if record.finding.verdict in FAILING and fingerprint in (None, record.finding.fingerprint)
    ]
    if not records:
        raise Failure(f"{identity}: no stored finding of that id needs to be accepted; see {place.folder}/findings", 2)
    # What kvfuzz's own corpus lists needs no entry in another folder, and a run would refuse two of them.
    lists = dict.fromkeys([corpus_folder() / "known.toml", folder / "known.toml"])
    known = read_all_known(lists, datetime.date.min)
    fresh = [r for r in records if not (new_only and known.covers(r.finding.fingerprint, r.finding.verdict))]
    accepted: list[str] = []
    for (unpatched, patched, contract), asked in groupby(sorted(fresh, key=_planners_of), key=_planners_of):
        pair = open_pair(unpatched, patched, contract, deadline, memory_gib)
        try:
            pair.start()
            versions = () if intended else tuple(dict.fromkeys(info.version for info in pair.infos()))
            for record, case in _least_cases(asked, place):
                finding = _standing(pair, record, case)
                if finding is None:
                    err().print(f"{record.id} {record.finding.fingerprint}: not shown any more", markup=False)
                    continue
                if finding.verdict == "regression" and not intended:
                    raise Failure(
                        f"{record.id}: only the patched planner does this, so it is no known fault; where the patch "
                        "means to, accept it with --intended",
                        2,
                    )
                provenance = Provenance(title=reason[:400], source=url, note=finding.summary)
                acceptance = Acceptance(
                    case=structs.replace(case, provenance=provenance), finding=finding, intended=intended,
                    under=tuple(label(version, contract, serving=finding.law in CHECKS) for version in versions),
                    reason=reason, url=url,
                    expires=datetime.date.today() + datetime.timedelta(days=days),
                )  # fmt: skip
                accepted.append(accept(folder, acceptance))
        finally:
            pair.close()
    if json:
        print_json({"accepted": accepted, "passed_over": len(records) - len(accepted)})
    else:
        for name in accepted:
            out().print(f"accepted: {folder / name}", markup=False)
        out().print(f"{len(accepted)} accepted, {len(records) - len(accepted)} passed over", markup=False)


def _planners_of(record: Record) -> tuple[str, str, Contract]:
    return record.unpatched, record.patched, record.contract


def _least_cases(records: Iterable[Record], store: Store) -> list[tuple[Record, Case]]:
    """For each fault its least stored case: a run keeps the one it found and the one it minimised. Raises Failure."""
    least: dict[str, tuple[Record, Case]] = {}
    for record in records:
        case = store.load(record.id)
        if case is None:
            raise Failure(f"{record.id}: its case is no longer in {store.folder}", 2)
        held = least.get(record.finding.fingerprint)
        if held is None or shortlex(case) < shortlex(held[1]):
            least[record.finding.fingerprint] = record, case
    return list(least.values())


def _standing(pair: Pair, record: Record, case: Case) -> Finding | None:
    """The finding as it shows now, asked for with all that its law needs."""
    findings = FocusedPair(pair, record.finding.law).ask(case).verdict.findings
    return next((found for found in findings if found.fingerprint == record.finding.fingerprint), None)
