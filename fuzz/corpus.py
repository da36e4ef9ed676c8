"""The corpus: case files in folders, and what is in them.

A *corpus file* is a case file (``oracles.case``) named ``*.json`` somewhere below the corpus folder; its folder
says what it is for (``examples``, ``models``, ``reports``, ``regress``). Names that begin with a dot are not
case files: they are writes in progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct
from rich.console import Group as Stacked
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fuzz.case_files import read_case
from oracles.case import Case, CaseError, case_id, is_mixed, kind_of, mode_of

LAYER_STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper ends of the histogram of layers per case: minimal cases have at most 4, models 30 to 200."""

BAR_CELLS = 24
"""Widest bar of a rendered histogram, in terminal cells: a table of two counts then fits in 60 columns."""


class CorpusError(Exception):
    """The corpus cannot be found or read; the message names each file."""


class Entry(Struct, frozen=True):
    """One corpus file: its path below the corpus folder, with forward slashes, and its case."""

    name: str
    case: Case

    @property
    def folder(self) -> str:
        """The first folder of the name; empty for a file beside the folders."""
        parts = PurePosixPath(self.name).parts
        return parts[0] if len(parts) > 1 else ""


class CorpusStats(Struct, frozen=True, kw_only=True):
    """What a corpus holds. Every table counts *cases*; a case with two kinds counts under both.

    ``duplicates`` are cases beyond the first of an id; ``layers`` is a histogram over ``LAYER_STEPS``,
    ``layer_total`` the layers of all cases together, ``specs`` the distinct layer specs.
    """

    cases: int
    duplicates: int
    layer_total: int
    specs: int
    mixed: int
    folders: dict[str, int]
    kinds: dict[str, int]
    modes: dict[str, int]
    dcp: dict[str, int]
    layouts: dict[str, int]
    layout_origins: dict[str, int]
    layers: dict[str, int]


def corpus_folder() -> Path:
    """The corpus that comes with kvfuzz: inside the package when installed, beside it in a checkout.

    Raises:
        CorpusError: neither is there.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "_corpus", package.parent / "corpus"):
        if folder.is_dir():
            return folder
    raise CorpusError(f"no corpus beside {package}; install kvfuzz from its wheel or run it from a checkout")


def case_files(folder: Path) -> Iterator[Path]:
    """The case files below ``folder``, in order of name, the same on every machine.

    Raises:
        CorpusError: ``folder`` is not a folder.
    """
    if not folder.is_dir():
        raise CorpusError(f"{folder}: not a folder")
    found = (path for path in folder.rglob("*.json") if not path.name.startswith(".") and path.is_file())
    yield from sorted(found, key=lambda path: path.relative_to(folder).as_posix())


def load_corpus(folder: Path) -> list[Entry]:
    """All case files below ``folder``, in order of name.

    Raises:
        CorpusError: one file or more is no case. The message has a line for each, not only for the first.
    """
    entries: list[Entry] = []
    faults: list[str] = []
    for path in case_files(folder):
        try:
            entries.append(Entry(path.relative_to(folder).as_posix(), read_case(path)))
        except CaseError as error:
            faults.append(str(error))
    if faults:
        raise CorpusError("\n".join(faults))
    return entries


def corpus_stats(entries: Iterable[Entry]) -> CorpusStats:
    """Counts what ``entries`` hold."""
    listed = list(entries)
    cases = [entry.case for entry in listed]
    return CorpusStats(
        cases=len(cases),
        duplicates=len(cases) - len({case_id(case) for case in cases}),
        layer_total=sum(len(case.layers) for case in cases),
        specs=len({spec for case in cases for spec in case.specs}),
        mixed=sum(map(is_mixed, cases)),
        folders=_counts(entry.folder or "." for entry in listed),
        kinds=_counts(kind for case in cases for kind in {kind_of(spec) for spec in case.specs}),
        modes=_counts(mode for case in cases for mode in {mode_of(spec) for spec in case.specs}),
        dcp=_sizes(case.settings.dcp for case in cases),
        layouts=_counts(case.settings.layout for case in cases),
        layout_origins=_counts(case.settings.layout_origin for case in cases),
        layers=_histogram(len(case.layers) for case in cases),
    )


def _counts(values: Iterable[str]) -> dict[str, int]:
    """Counts by value, most frequent first, equal ones by name."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _sizes(values: Iterable[int]) -> dict[str, int]:
    """Counts by number, in its order."""
    return {str(value): count for value, count in sorted(Counter(values).items())}


def _histogram(values: Iterable[int]) -> dict[str, int]:
    """Counts by step of ``LAYER_STEPS``; steps outside the range seen are left out."""
    counts: Counter[int] = Counter()
    for value in values:
        counts[next((i for i, end in enumerate(LAYER_STEPS) if value <= end), len(LAYER_STEPS))] += 1
    if not counts:
        return {}
    return {_step_name(i): counts[i] for i in range(min(counts), max(counts) + 1)}


def _step_name(index: int) -> str:
    if index == len(LAYER_STEPS):
        return f"over {LAYER_STEPS[-1]}"
    end = LAYER_STEPS[index]
    start = LAYER_STEPS[index - 1] + 1 if index else end
    return str(end) if start == end else f"{start}–{end}"


def render_stats(stats: CorpusStats) -> RenderableType:
    """The counts for a terminal: a heading and one table, a section for each question."""
    heading = Text(f"{stats.cases:,} cases, {stats.layer_total:,} layers, {stats.specs:,} distinct specs")
    heading.append(f"; {stats.mixed:,} mix replicated layers with others")
    if stats.duplicates:
        heading.append(f"; {stats.duplicates:,} ask what another one asks", style="yellow")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("by")
    table.add_column("value")
    table.add_column("cases", justify="right")
    table.add_column("")
    for title, counts in (
        ("folder", stats.folders),
        ("kind", stats.kinds),
        ("mode", stats.modes),
        ("dcp", stats.dcp),
        ("layout", stats.layouts),
        ("layout is", stats.layout_origins),
        ("layers", stats.layers),
    ):
        for at, (value, count) in enumerate(counts.items()):
            bar = "▇" * max(1 if count else 0, round(BAR_CELLS * count / stats.cases))
            table.add_row(title if not at else "", value, f"{count:,}", bar)
    return Stacked(heading, "", table)
