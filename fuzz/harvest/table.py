"""The table of harvested models, as Markdown and for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from fuzz.harvest.models import Modelled
from oracles.case import Case, kind_of
from oracles.geometry import page_bytes

FIGURES = 4
"""Different block sizes or pages of a model that a cell names; more are counted."""


class Row(Struct, frozen=True, kw_only=True):
    """One model: its layers by kind, block sizes in tokens, and bytes of one layer's page."""

    name: str
    family: str
    architecture: str
    tp: int
    kinds: dict[str, int]
    blocks: tuple[int, ...]
    pages: tuple[int, ...]
    layout: str
    grade: str


def row_of(model: Modelled, family: str) -> Row:
    """The row of one model."""
    case = model.case
    return Row(
        name=model.name, family=family, architecture=model.architecture, tp=case.settings.tp,
        kinds=kinds_of(case), blocks=tuple(sorted({spec.block_size for spec in case.specs})),
        pages=tuple(sorted({page_bytes(spec) for spec in case.specs})), layout=case.settings.layout, grade=model.grade,
    )  # fmt: skip


def kinds_of(case: Case) -> dict[str, int]:
    """Layers by kind, most frequent first, equal ones by name."""
    counts = Counter(kind_of(case.spec_of(layer)) for layer in case.layers)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def models_page(rows: Sequence[Row], version: str, platform: str, command: str) -> str:
    """The page of all models, in Markdown."""
    by_kind = Counter(kind for row in rows for kind in row.kinds)
    lines = [
        "# Models",
        "",
        f"What vLLM {version} says that each layer of {len(rows)} models caches, on platform `{platform}`. "
        f"Made by `{command}`; not edited by hand.",
        "",
        "Hyper-parameters were written down by hand from public facts: check them before calling a row a checkpoint's "
        "geometry. Names that end in `-default` are the class defaults of transformers. Grades: `exact` (a platform "
        "that is there), `simulated` (a faked device), `approximate` (values of tensors were read while building, and "
        "answered with zeros), `estimated` (read off the configuration).",
        "",
        "Models by kind of layer: " + ", ".join(f"{kind} {count}" for kind, count in by_kind.most_common()) + ".",
        "",
        "| model | family | architecture | tp | layers by kind | block (tokens) | page (bytes) | layout | grade |",
        "|---|---|---|--:|---|---|---|---|---|",
    ]
    for row in rows:
        kinds = ", ".join(f"{count} {kind}" for kind, count in row.kinds.items())
        lines.append(
            f"| {row.name} | {row.family} | {row.architecture} | {row.tp} | {kinds} | {figures(row.blocks)} | "
            f"{figures(row.pages)} | {row.layout} | {row.grade} |"
        )
    return "\n".join(lines) + "\n"


def figures(values: Sequence[int]) -> str:
    """Some numbers in a cell."""
    shown = ", ".join(f"{value:,}" for value in values[:FIGURES])
    return shown if len(values) <= FIGURES else f"{shown} and {len(values) - FIGURES} more"
