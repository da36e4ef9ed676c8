"""``corpus/known.toml``: findings that are known, why, and until when. Counted and shown, never hidden."""

from __future__ import annotations

import datetime
import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from fuzz.case_files import read_toml
from oracles.compare import VerdictName


class KnownError(ValueError):
    """A known.toml that cannot be used: names the file, the entry and the remedy."""


class Known(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known fault: the fingerprint of its finding, why it stands, where it is discussed, when to look again.

    ``case`` is the corpus file that shows it, and ``under`` lists the releases and contracts on which it does
    (``0.32.0 isolate``, or ``0.32.0 isolate requests`` for a fault that only serving requests shows): a run that asks
    that case under one of these and does not meet the fault says so. An
    ``intended`` entry is no fault but a change that a patch makes on purpose: it covers regressions too.
    """

    fingerprint: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}\Z")]
    reason: Annotated[str, Meta(min_length=1, max_length=1000)]
    url: Annotated[str, Meta(max_length=400)] = ""
    expires: datetime.date
    case: Annotated[str, Meta(max_length=400)] = ""
    under: tuple[Annotated[str, Meta(max_length=100)], ...] = ()
    intended: bool = False


class _File(Struct, forbid_unknown_fields=True):
    known: list[Known] = []


class KnownFindings:
    """The known findings by fingerprint."""

    def __init__(self, entries: list[Known]) -> None:
        self._entries = {entry.fingerprint: entry for entry in entries}

    @property
    def entries(self) -> tuple[Known, ...]:
        """All entries, in order."""
        return tuple(self._entries.values())

    def covers(self, fingerprint: str, verdict: VerdictName) -> bool:
        """Whether a finding is known. A regression is so only where it is intended: what only the patched planner does
        cannot be a fault that the unpatched one is known for, even when it looks the same.
        """
        entry = self._entries.get(fingerprint)
        return entry is not None and (entry.intended or verdict != "regression")

    def unmatched(self, met: set[str], under: Sequence[str]) -> tuple[Known, ...]:
        """The entries that a run should have met, having asked their cases ``under`` these releases and contracts."""
        return tuple(
            entry
            for fingerprint, entry in self._entries.items()
            if entry.case and fingerprint not in met and set(entry.under) & set(under)
        )

    def met(self, fingerprints: set[str]) -> tuple[Known, ...]:
        """The entries that a run met."""
        return tuple(e for f, e in self._entries.items() if f in fingerprints)


def label(version: str, contract: str, *, serving: bool = False) -> str:
    """How ``under`` names a release and a contract, and that requests are served there."""
    return f"{version} {contract} requests" if serving else f"{version} {contract}"


def read_known(path: Path, today: datetime.date) -> KnownFindings:
    """Reads known.toml; no file means no known findings.

    Raises:
        KnownError: not readable, a wrong field, an entry that stands twice, or one that has expired.
    """
    if not os.path.lexists(path):
        return KnownFindings([])
    try:
        entries = msgspec.convert(tomllib.loads(read_toml(path)), type=_File).known
    except OSError as error:
        raise KnownError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        # ValueError is what TOML, text and types raise here.
        raise KnownError(f"{path}: {error}") from None
    seen: set[str] = set()
    for entry in entries:
        if entry.fingerprint in seen:
            raise KnownError(f"{path}: {entry.fingerprint} stands twice; delete one of the entries")
        seen.add(entry.fingerprint)
        for text in (entry.reason, entry.url, entry.case, *entry.under):
            if text and not text.replace("\n", "").replace("\t", "").isprintable():
                raise KnownError(f"{path}: {entry.fingerprint} has control characters; use printable ones")
        if entry.expires < today:
            raise KnownError(
                f"{path}: {entry.fingerprint} expired on {entry.expires}; look whether the fault still stands, "
                "then renew the date or delete the entry"
            )
    return KnownFindings(entries)


def read_all_known(paths: Iterable[Path], today: datetime.date) -> KnownFindings:
    """Reads several files; a fingerprint may stand in one of them only. Raises KnownError."""
    entries: dict[str, Known] = {}
    for path in paths:
        for entry in read_known(path, today).entries:
            if entry.fingerprint in entries:
                raise KnownError(f"{path}: {entry.fingerprint} stands in another file too; delete one of the entries")
            entries[entry.fingerprint] = entry
    return KnownFindings(list(entries.values()))
