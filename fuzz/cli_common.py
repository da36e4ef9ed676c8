"""What the commands share: options, consoles, and the planners they name."""

from __future__ import annotations

import datetime
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder, load_corpus
from fuzz.known import KnownFindings, read_all_known
from fuzz.pair import Pair, choose_contract
from fuzz.planners.address import Contract
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES, Planner
from fuzz.planners.trees import open_launch, read_config
from fuzz.report.summary import visible
from fuzz.store import DEFAULT_FOLDER, Store, is_identity
from oracles.case import Case, CaseError, case_id

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else there.")]
Unpatched = Annotated[str, typer.Option(help="Address of the planner to compare with.")]
Patched = Annotated[str, typer.Option(help="Address of the planner under test.")]
ContractFlag = Annotated[
    str | None, typer.Option(help="native or isolate; default: what the patched planner promises.")
]
Deadline = Annotated[float, typer.Option("--deadline", min=0.1, max=86_400, help="Seconds a planner has for one case.")]
MemoryGiB = Annotated[float, typer.Option("--memory-gib", min=0.1, max=1e6, help="GiB a worker may grow by.")]
StoreFlag = Annotated[Path, typer.Option("--store", help="Folder for findings and their cases.")]


KnownFlag = Annotated[
    list[Path] | None,
    typer.Option("--known", help="A known.toml of your own; several times for more."),
]
GateFlag = Annotated[
    bool, typer.Option("--gate", help="Fail for what the patched planner alone does, not for what both do.")
]


def store_argument(store: Path) -> str:
    """The option that names the store, with a space before it; empty for the default."""
    return "" if store == DEFAULT_FOLDER else f" --store {shlex.quote(str(store))}"


class Failure(Exception):
    """Ends the command with a message and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def shown(text: str) -> str:
    """Text of others, in its lines, with what does not print as escapes: a terminal obeys control characters."""
    return text if text.isprintable() else "\n".join(visible(line) for line in text.split("\n"))


LOG_COLUMNS = 120
"""Width where no terminal says one: a log that is read in a browser has room for a line of ours."""


class _Console(Console):
    """A console to which nothing that a tree, an overlay or a file says is more than text."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, stderr=stderr)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = LOG_COLUMNS

    def render_str(self, text: str, **options: Any) -> Text:
        """Every string that is printed comes through here, before it is laid out. Styles are no part of it yet."""
        return super().render_str(shown(text), **options)


def out() -> Console:
    """Where results go."""
    return _Console()


def err() -> Console:
    """Where progress and errors go."""
    return _Console(stderr=True)


_printed = False
"""Whether this command has printed its document."""


def print_json(document: Any) -> None:
    """One JSON document on standard output."""
    global _printed
    _printed = True
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")


def print_failure(message: str, code: int) -> None:
    """The failure as a document, where ``--json`` was asked for and none was printed yet."""
    if "--json" in sys.argv[1:] and not _printed:
        print_json({"error": shown(message), "exit_code": code})


def known_findings(own: list[Path] | None) -> KnownFindings:
    """What the corpus lists as known, with the user's own files. Raises KnownError and Failure."""
    for path in own or ():
        if not path.exists():
            raise Failure(f"--known {path}: no such file", 2)
    return read_all_known([corpus_folder() / "known.toml", *(own or ())], datetime.date.today())


def find_case(text: str, store: Store) -> Case:
    """A case by file, by ``-`` for standard input, or by id from the store or the corpus. Raises CaseError."""
    if text == "-":
        return read_case(Path("/dev/stdin"))
    path = Path(text)
    if is_identity(text) and not path.exists():
        found = store.load(text) or next(
            (e.case for e in load_corpus(corpus_folder()) if case_id(e.case) == text), None
        )
        if found is None:
            raise CaseError(f"{text}: no case of that id in {store.folder} or the corpus")
        return found
    return read_case(path)


def chosen_cases(what: str, store: Store) -> list[tuple[str, Case]]:
    """One case by its name, or with ``all`` those of the corpus and of stored findings. Raises CaseError."""
    if what == "all":
        corpus = load_corpus(corpus_folder())
        held = {case_id(entry.case) for entry in corpus}
        return [*((one.name, one.case) for one in corpus), *(kept for kept in store.cases() if kept[0] not in held)]
    return [(what, find_case(what, store))]


@contextmanager
def planners_at(
    addresses: Sequence[str], case_seconds: float = CASE_SECONDS, memory_gib: float = MEMORY_BYTES / 2**30
) -> Iterator[list[Planner]]:
    """Planners by address, starting side by side, for the time of the block. Raises AddressError and FetchError."""
    config = read_config(Path.cwd())
    launches = [open_launch(address, config) for address in addresses]
    with ExitStack() as stack:
        planners = [
            stack.enter_context(Planner(launch, case_seconds=case_seconds, memory=int(memory_gib * 2**30)))
            for launch in launches
        ]
        for one in planners:
            one.start()
        yield planners


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def to_contract(text: str | None) -> Contract | None:
    """A contract by name. Raises Failure."""
    if text is None or text == "native" or text == "isolate":
        return text  # type: ignore[return-value]
    raise Failure(f"--contract {text!r}: is not a contract; choose native or isolate", 2)


def duration(text: str) -> float:
    """Seconds from ``60``, ``60s``, ``2m`` or ``1h``. Raises Failure."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if not found:
        raise Failure(f"--time {text!r}: is not a duration; write 60s, 2m or 1h", 2)
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def open_pair(unpatched: str, patched: str, contract: str | None, deadline: float, memory_gib: float) -> Pair:
    """Resolves both addresses and the contract; nothing is started yet."""
    config = read_config(Path.cwd())
    before, after = open_launch(unpatched, config), open_launch(patched, config)
    return Pair(
        before, after, choose_contract(to_contract(contract), after),
        case_seconds=deadline, memory=int(memory_gib * 2**30),
    )  # fmt: skip
