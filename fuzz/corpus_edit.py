"""Changes to a corpus: merging, pruning, and accepting a finding as known.

Nothing that is there is ever rewritten: a merge adds files, pruning removes cases that show nothing of their own, and
accepting adds a case and an entry of known.toml. Every file is written whole.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from pathlib import Path

import tomlkit
from msgspec import Struct

from fuzz.case_files import write_case, write_whole
from fuzz.corpus import CorpusError, Entry, load_corpus
from fuzz.known import KnownError, read_known
from fuzz.strategies.features import Features, features
from oracles.case import Case, case_id, shortlex
from oracles.compare import Finding


class Merged(Struct, frozen=True, kw_only=True):
    """Names of the files that a merge added, below the target, and how many cases it had already."""

    added: tuple[str, ...]
    had: int


class Pruned(Struct, frozen=True, kw_only=True):
    """Names of the files that show nothing of their own, and of those that stay."""

    removed: tuple[str, ...]
    kept: tuple[str, ...]


def merge(source: Path, target: Path) -> Merged:
    """Adds to ``target`` every case of ``source`` that it does not ask yet, under the same name where that is free.

    Raises:
        CorpusError: a file of either is no case; nothing is written then.
        OSError: a file cannot be written.
    """
    incoming = load_corpus(source)
    held = {case_id(entry.case) for entry in load_corpus(target)} if target.is_dir() else set()
    added: list[str] = []
    had = 0
    for entry in incoming:
        identity = case_id(entry.case)
        if identity in held:
            had += 1
            continue
        held.add(identity)
        path = target / entry.name
        if path.exists():
            path = path.with_name(f"{path.stem}-{identity}.json")
        if path.exists():
            raise CorpusError(f"{path}: is another case already; rename it or {source / entry.name}")
        write_case(path, entry.case)
        added.append(path.relative_to(target).as_posix())
    return Merged(added=tuple(added), had=had)


def superfluous(entries: Iterable[Entry], needed: frozenset[str]) -> list[Entry]:
    """The entries that are neither the least case of their feature tuple nor, by id, ``needed``."""
    ordered = sorted(entries, key=lambda entry: shortlex(entry.case))
    seen: set[Features] = set()
    rest = []
    for entry in ordered:
        shown = features(entry.case)
        if shown in seen and case_id(entry.case) not in needed:
            rest.append(entry)
        seen.add(shown)
    return rest


def prune(folder: Path, needed: frozenset[str], *, remove: bool) -> Pruned:
    """Finds the cases of ``folder`` that are superfluous; with ``remove`` deletes them.

    ``needed`` are ids that stay whatever they show: the least case of each fingerprint. Raises CorpusError.
    """
    entries = load_corpus(folder)
    gone = {entry.name for entry in superfluous(entries, needed)}
    if remove:
        for name in gone:
            (folder / name).unlink(missing_ok=True)
    return Pruned(
        removed=tuple(sorted(gone)), kept=tuple(entry.name for entry in entries if entry.name not in gone)
    )  # fmt: skip


class Acceptance(Struct, frozen=True, kw_only=True):
    """A finding that stands, and why it is accepted. ``under`` names release and contract (``0.32.0 isolate``)."""

    case: Case
    finding: Finding
    under: tuple[str, ...]
    intended: bool
    reason: str
    url: str
    expires: datetime.date


def accept(folder: Path, accepted: Acceptance) -> str:
    """Adds the case to ``regress/`` and its entry to ``known.toml``; returns the case's name.

    Raises:
        CorpusError: the fault is listed already, or the new file would not be valid; nothing is changed then.
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "known.toml"
    finding = accepted.finding
    read_known(path, datetime.date.min)
    text = path.read_text() if path.is_file() else ""
    document = tomlkit.parse(text)
    entries = document.get("known")
    if entries is not None and any(entry.get("fingerprint") == finding.fingerprint for entry in entries):
        raise CorpusError(f"{path}: {finding.fingerprint} is listed already; change its entry by hand")
    name = f"regress/{case_id(accepted.case)}-{finding.fingerprint}.json"
    entry = tomlkit.table()
    entry.update({
        "fingerprint": finding.fingerprint, "reason": accepted.reason, "url": accepted.url,
        "expires": accepted.expires, "case": name, "under": list(accepted.under),
    })  # fmt: skip
    if entries is None:
        entries = tomlkit.aot()
        document["known"] = entries
    if accepted.intended:
        entry["intended"] = True
    entries.append(entry)
    draft = path.with_name(".known.draft.toml")
    draft.write_text(tomlkit.dumps(document))
    try:
        read_known(draft, datetime.date.min)
    except KnownError as error:
        raise CorpusError(f"the entry would not be valid: {error}") from None
    finally:
        draft.unlink(missing_ok=True)
    # The case first: a case without an entry is harmless, an entry without its case is not.
    write_case(folder / name, accepted.case)
    write_whole(path, tomlkit.dumps(document).encode())
    return name
