"""What survives a kill: the state of a run, the batches in flight, and every fault as it was told.

``STORE/runs/RUN/`` holds ``state.json`` (replaced whole, at most once a second), ``batches/N.json`` for each batch that
is not yet part of it, ``cases/N.jsonl`` with that batch's cases (written by the lane before a planner sees them) and
``found.jsonl`` (one line per fault, before it is told). A run that is resumed asks the batches again and goes on.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from fuzz.campaign.batches import Batch
from fuzz.campaign.events import Witness
from fuzz.campaign.frontier import Reached
from fuzz.campaign.lane import in_flight_path
from fuzz.campaign.ledger import Books
from fuzz.case_files import read_limited
from fuzz.store import Store
from oracles.case import Case, CaseError, load_case
from oracles.law import Contract

FORMAT = 1
KEPT_RUNS = 10
"""Finished runs whose folders stay; findings and cases lie elsewhere and are never removed."""

MAX_STATE_BYTES = 64 << 20
MAX_BATCH_BYTES = 256 << 20


class ResumeError(Exception):
    """There is no run to go on with, or its state cannot be used; the message says what to do."""


class Busy(ResumeError):
    """A run that another process is working on."""


class Asking(Struct, frozen=True, kw_only=True):
    """What a run was asked to do. ``seconds`` and ``cases`` bound it; ``corpus`` and the others are switches."""

    unpatched: str
    patched: str
    contract: Contract
    seed: int
    seconds: float | None
    cases: int | None
    corpus: bool
    twins: bool
    canary: bool
    requests: bool
    gate: bool
    jobs: Annotated[int, Meta(ge=1, le=1024)]


class State(Struct, frozen=True, kw_only=True):
    """Where a run stands. Batches below ``absorbed`` are part of it. ``parents_at``: how many cases a batch not yet
    given out may choose its parents from, by the number of the batch absorbed last. ``corpus_batches``: how many of the
    first batches are the corpus's, where the time was too short for all of them.
    """

    format: int
    run: str
    asking: Asking
    seconds: float
    absorbed: Annotated[int, Meta(ge=0)]
    books: Books
    reached: Reached
    canary_law: str
    finished: bool
    parents_at: dict[int, int] = {}
    corpus_batches: Annotated[int, Meta(ge=0)] | None = None


class _Version(Struct, frozen=True):
    """What every format of a state says of itself."""

    format: int


class Journal:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases_folder = folder / "cases"
        self._batches = folder / "batches"
        for place in (self.cases_folder, self._batches):
            place.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise Busy(f"{folder}: another process is running it") from None

    @property
    def run(self) -> str:
        """The run's name."""
        return self.folder.name

    @classmethod
    def new(cls, store: Store, seed: int) -> Journal:
        """A folder for a new run, named by the time and the seed."""
        store.begin()
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
        for at in range(1000):
            folder = store.folder / "runs" / (f"{stamp}-{seed}" + (f".{at}" if at else ""))
            with contextlib.suppress(FileExistsError):
                folder.mkdir(parents=True)
                return cls(folder)
        raise OSError(f"{store.folder / 'runs'}: no free name for a run")

    @classmethod
    def last_unfinished(cls, store: Store) -> tuple[Journal, State]:
        """The newest run that was ended before its time. Raises ResumeError; for a damaged state too, since a run that
        is older than it is not the one that was meant.
        """
        later = ""
        for folder in sorted((store.folder / "runs").glob("*"), reverse=True):
            path = folder / "state.json"
            if not os.path.lexists(path):
                continue  # it was ended before its first state, or this is no folder of a run
            try:
                state = load_state(path)
            except ResumeError as error:
                raise ResumeError(
                    f"--resume: {error}; remove {folder} to go on with the run before it, or leave --resume out"
                ) from None
            if state is None:
                later = f" that this kvfuzz reads ({path} is of another format)"
            elif not state.finished:
                with contextlib.suppress(Busy):
                    return cls(folder), state
        raise ResumeError(
            f"--resume: {store.folder} holds no run that was ended before its time{later}; leave --resume out"
        )

    def open(self, batch: Batch) -> None:
        """Notes a batch before it is given to a lane."""
        _replace(self._batches / f"{batch.number:08}.json", msgspec.json.encode(batch))

    def tell(self, witness: Witness) -> None:
        """Notes a fault before it is told."""
        with (self.folder / "found.jsonl").open("ab") as stream:
            stream.write(msgspec.json.encode(witness) + b"\n")

    def save(self, state: State) -> None:
        """Replaces the state; batches that are part of it are forgotten."""
        _replace(self.folder / "state.json", msgspec.json.encode(state))
        for folder in (self._batches, self.cases_folder):
            for path in folder.iterdir():
                if path.stem.isdecimal() and int(path.stem) < state.absorbed:
                    path.unlink(missing_ok=True)

    def in_flight(self) -> list[Batch]:
        """The batches that were not part of the state, in order, with their cases where they were written whole."""
        found = []
        for path in sorted(self._batches.glob("*.json")):
            with contextlib.suppress(msgspec.DecodeError, OSError, RecursionError):
                batch = msgspec.json.decode(read_limited(path, MAX_BATCH_BYTES), type=Batch)
                found.append(msgspec.structs.replace(batch, given=self._cases_of(batch)))
        return found

    def _cases_of(self, batch: Batch) -> tuple[Case, ...]:
        try:
            lines = read_limited(in_flight_path(self.cases_folder, batch.number), MAX_BATCH_BYTES).splitlines()
            cases = tuple(load_case(line) for line in lines)
        except (OSError, CaseError):
            return batch.given
        return cases if len(cases) == batch.count else batch.given

    def told(self) -> list[Witness]:
        """The faults told so far; a last line that was cut off is none."""
        found = []
        with contextlib.suppress(OSError):
            for line in read_limited(self.folder / "found.jsonl", MAX_STATE_BYTES).splitlines():
                with contextlib.suppress(msgspec.DecodeError, RecursionError):
                    found.append(msgspec.json.decode(line, type=Witness))
        return found


def read_state(path: Path) -> State | None:
    """A stored state; None for none, for a damaged one, and for one of another format, which is left alone."""
    try:
        return load_state(path)
    except ResumeError:
        return None


def load_state(path: Path) -> State | None:
    """A stored state; None for one of another format. Raises ResumeError when it is damaged."""
    try:
        data = read_limited(path, MAX_STATE_BYTES)
        if msgspec.json.decode(data, type=_Version).format != FORMAT:
            return None
        return msgspec.json.decode(data, type=State)
    except OSError as error:
        raise ResumeError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        # ValueError is what text, JSON and types raise here.
        raise ResumeError(f"{path}: is damaged ({error})") from None


def forget_old_runs(store: Store) -> None:
    """Removes the folders of all but the newest finished runs."""
    finished = [
        folder
        for folder in sorted((store.folder / "runs").glob("*"), reverse=True)
        if (state := read_state(folder / "state.json")) is not None and state.finished
    ]
    for folder in finished[KEPT_RUNS:]:
        for path in sorted(folder.rglob("*"), reverse=True):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


def _replace(path: Path, data: bytes) -> None:
    """Writes whole, without waiting for the disk: what must be survived is the death of a process."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(data)
    draft.replace(path)
