"""What a run leaves on disk: cases worth keeping, and a record for each finding.

``.kvfuzz/cases/ID.json`` are case files; ``.kvfuzz/findings/ID-FINGERPRINT.json`` say what was wrong, with which
planners. Every file is written beside its place and renamed into it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from fuzz.case_files import read_case, write_case, write_whole
from oracles.case import Case, CaseError, case_id
from oracles.compare import Finding
from oracles.law import Contract

DEFAULT_FOLDER = Path(".kvfuzz")
RECORD_FORMAT = 1
MAX_RECORD_BYTES = 1 << 20
CASE_ID = r"^[0-9a-f]{12}\Z"
FINGERPRINT = r"^[0-9a-f]{8}\Z"
"""Ids and fingerprints in stored files make names of files: nothing else is taken for one, and ``$`` would let a line
break follow."""


class Record(Struct, frozen=True, kw_only=True):
    """A finding as stored: the case it was seen on, and how to ask again."""

    format: int
    id: Annotated[str, Meta(pattern=CASE_ID)]
    finding: Finding
    contract: Contract
    unpatched: str
    patched: str


class Store:
    """A folder of cases and findings."""

    def __init__(self, folder: Path = DEFAULT_FOLDER) -> None:
        self.folder = folder

    def begin(self) -> None:
        """Makes the folder, such that git ignores what is in it; a folder that is there already is left as it is."""
        if not self.folder.exists():
            write_whole(self.folder / ".gitignore", b"# Made by kvfuzz\n*\n")

    def case_path(self, identity: str) -> Path:
        """Where a case lies or would lie."""
        return self.folder / "cases" / f"{identity}.json"

    def keep_case(self, case: Case) -> Path:
        """Writes a case file, unless it is there already."""
        path = self.case_path(case_id(case))
        if not path.is_file():
            write_case(path, case)
        return path

    def keep_finding(self, case: Case, finding: Finding, contract: Contract, unpatched: str, patched: str) -> Record:
        """Writes a finding and its case."""
        record = Record(
            format=RECORD_FORMAT, id=case_id(case), finding=finding, contract=contract,
            unpatched=unpatched, patched=patched,
        )  # fmt: skip
        self.keep_case(case)
        path = self.folder / "findings" / f"{record.id}-{finding.fingerprint}.json"
        write_whole(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        return record

    def drop_finding(self, identity: str, fingerprint: str) -> None:
        """Forgets a witness that was never told; its case stays only while another needs it."""
        self.drop_record(identity, fingerprint)
        if not any((self.folder / "findings").glob(f"{identity}-*.json")):
            self.case_path(identity).unlink(missing_ok=True)

    def drop_record(self, identity: str, fingerprint: str) -> None:
        """Forgets a witness for which a smaller one was found. Its case stays: its id may have been told."""
        (self.folder / "findings" / f"{identity}-{fingerprint}.json").unlink(missing_ok=True)

    def keep_grown(self, case: Case) -> Path:
        """Writes a case that reached something new, unless it is there already."""
        path = self.grown_folder / f"{case_id(case)}.json"
        if not path.is_file():
            write_case(path, case)
        return path

    def load_grown(self, identity: str) -> Case | None:
        """The case of that id that reached something new; None when it is not here or is no case any more."""
        try:
            return read_case(self.grown_folder / f"{identity}.json")
        except CaseError:
            return None

    @property
    def grown_folder(self) -> Path:
        """Where cases lie that reached something new."""
        return self.folder / "corpus"

    def records(self, identity: str | None = None) -> list[Record]:
        """All stored findings, or those of one case. Files that are no records are left alone and skipped."""
        found = []
        for path in sorted((self.folder / "findings").glob(f"{identity or '*'}-*.json")):
            if not path.is_file() or path.stat().st_size > MAX_RECORD_BYTES:
                continue
            try:
                record = msgspec.json.decode(path.read_bytes(), type=Record)
            except (msgspec.DecodeError, RecursionError, OSError):
                continue
            if record.format == RECORD_FORMAT and re.match(FINGERPRINT, record.finding.fingerprint):
                found.append(record)
        return found

    def cases(self) -> list[tuple[str, Case]]:
        """The cases of all stored findings, by id. Raises CaseError for a file that is no case."""
        identities = dict.fromkeys(record.id for record in self.records())
        return [(i, read_case(self.case_path(i))) for i in identities if self.case_path(i).is_file()]

    def load(self, identity: str) -> Case | None:
        """The case of that id; None when it is not here."""
        path = self.case_path(identity)
        return read_case(path) if path.is_file() else None


def is_identity(text: str) -> bool:
    """Whether ``text`` is written like a case id."""
    return bool(re.match(CASE_ID, text))
