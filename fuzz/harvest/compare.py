"""Plans of all harvested models, before and after a patch, and pinned per version.

Each model is planned as it is and with a replicated draft of five window layers, at several DCP sizes. Nothing
depends on the clock or on the order of answers: two runs give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from fuzz.corpus import Entry, load_corpus
from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.figures import Figures, figures_of
from fuzz.harvest.samples import deployed, with_window_draft
from fuzz.planners.process import Planner, Question
from oracles.case import Case

NO_DRAFT = "none"
WINDOW_DRAFT = "5 windows"
MAX_REASON = 100
"""Characters of a refusal in a cell; the whole of it is what the planner says again when asked."""

FORM_MARK = ".dcp"
"""In names of corpus files that are a form of a harvest already, not a harvest."""


class Asked(Struct, frozen=True, kw_only=True):
    """One model in one form."""

    model: str
    draft: str
    dcp: int
    case: Case


class Row(Struct, frozen=True, kw_only=True):
    """One model in one form, under both planners."""

    model: str
    draft: str
    dcp: int
    before: Figures
    after: Figures

    @property
    def changed(self) -> bool:
        """Whether the two plans, or refusals, differ in anything at all."""
        return self.before.digest != self.after.digest

    @property
    def telling(self) -> bool:
        """Whether the change is one of groups, bytes of a block, capacity or refusal, and not of form only: a plain
        group or a wrapper of the same layers, another order of records.
        """
        return self.changed and self._cells(self.before) != self._cells(self.after)

    @staticmethod
    def _cells(figures: Figures) -> tuple[object, ...]:
        return figures.shape(), figures.block_bytes, figures.tokens, figures.refused


class Compared(Struct, frozen=True, kw_only=True):
    """All rows, with the two planners' addresses and versions."""

    unpatched: str
    patched: str
    versions: tuple[str, str]
    models: int
    dcp: tuple[int, ...]
    rows: tuple[Row, ...]

    @property
    def changed(self) -> tuple[Row, ...]:
        """The rows that differ."""
        return tuple(row for row in self.rows if row.changed)


class Pin(Struct, frozen=True, kw_only=True):
    """One plan of one planner."""

    model: str
    draft: str
    dcp: int
    figures: Figures


def forms(folder: Path, dcp: Sequence[int]) -> list[Asked]:
    """Every harvested model of ``folder`` in every form, in order of name.

    Raises:
        ConfigError: no harvested model is there.
    """
    models = [entry for entry in load_corpus(folder) if _is_harvest(entry)]
    if not models:
        raise ConfigError(f"{folder}: no harvested model here; make some with kvfuzz harvest --all FOLDER -o {folder}")
    return [
        Asked(model=entry.name.removesuffix(".json"), draft=draft, dcp=size, case=case)
        for entry in models
        for size in dcp
        for plain in [deployed(entry.case, size)]
        for draft, case in ((NO_DRAFT, plain), (WINDOW_DRAFT, with_window_draft(plain)))
    ]


def _is_harvest(entry: Entry) -> bool:
    return FORM_MARK not in entry.name and not any(layer.draft for layer in entry.case.layers)


def compare_models(unpatched: Planner, patched: Planner, folder: Path, dcp: Sequence[int]) -> Compared:
    """Plans every form with both planners. Raises PlannerError and ConfigError."""
    asked = forms(folder, dcp)
    questions = [Question(one.case) for one in asked]
    waiting = unpatched.submit(questions), patched.submit(questions)
    before, after = (future.result() for future in waiting)
    return Compared(
        unpatched=unpatched.address, patched=patched.address,
        versions=(unpatched.hello().version, patched.hello().version),
        models=len({one.model for one in asked}), dcp=tuple(dcp),
        rows=tuple(
            Row(
                model=one.model, draft=one.draft, dcp=one.dcp, before=figures_of(one.case, first.outcome),
                after=figures_of(one.case, second.outcome),
            )
            for one, first, second in zip(asked, before, after, strict=True)
        ),
    )  # fmt: skip


def pin_models(planner: Planner, folder: Path, dcp: Sequence[int]) -> list[Pin]:
    """The plans of every form. Raises PlannerError and ConfigError."""
    asked = forms(folder, dcp)
    answers = planner.ask([Question(one.case) for one in asked])
    return [
        Pin(model=one.model, draft=one.draft, dcp=one.dcp, figures=figures_of(one.case, answer.outcome))
        for one, answer in zip(asked, answers, strict=True)
    ]


def pins_text(pins: Sequence[Pin], version: str) -> str:
    """A line per plan: what it is of, its groups, bytes per block, tokens, and a digest of all the rest."""
    lines = [f"# Plans of vLLM {version}. Made by kvfuzz pin-plans; a changed line is a changed plan."]
    for pin in pins:
        figures = pin.figures
        told = figures.refused or (
            f"{len(figures.groups)} groups: {figures.shape()} | {figures.block_bytes:,} bytes | "
            f"{figures.tokens:,} tokens"
        )
        lines.append(f"{pin.model} | dcp {pin.dcp} | draft {pin.draft} | {told} | {figures.digest}")
    return "\n".join(lines) + "\n"


def changes_page(compared: Compared) -> str:
    """The page of plan changes, in Markdown. DCP sizes under which a model's cells are equal share a row."""
    telling = [row for row in compared.rows if row.telling]
    sizes = ", ".join(map(str, compared.dcp))
    lines = [
        "# Plan changes",
        "",
        f"`{compared.unpatched}` (vLLM {compared.versions[0]}) against "
        f"`{compared.patched}` (vLLM {compared.versions[1]}): "
        f"{compared.models} models, without a draft and with a draft of five window layers that is replicated, at DCP "
        f"{sizes}. Made by `kvfuzz compare-plans`; not edited by hand.",
        "",
        "Windows and chunks of a model are replicated above DCP 1, where vLLM cannot split them. At DCP 1 vLLM itself "
        "marks no draft replicated: those rows show what marking alone does.",
        "",
        f"{len(telling)} of {len(compared.rows)} plans change, of "
        f"{len({row.model for row in telling})} of {compared.models} models; "
        f"{len(compared.changed) - len(telling)} more differ in what this page does not show (`kvfuzz pin-plans` "
        f"tells which). " + _by_draft(compared),
        "",
    ]
    if telling:
        lines += [
            "Groups are layers, kind and block in tokens (R: replicated); capacity is in tokens, for the memory of "
            "the case.",
            "",
            "| model | draft | dcp | groups before | groups after | bytes per block | capacity |",
            "|---|---|---|---|---|---|--:|",
        ]
        merged: dict[tuple[str, ...], list[int]] = {}
        for row in telling:
            merged.setdefault(_cells(row), []).append(row.dcp)
        for (model, draft, *rest), dcp in merged.items():
            lines.append(f"| {model} | {draft} | {', '.join(map(str, dcp))} | {' | '.join(rest)} |")
        lines.append("")
    return "\n".join(lines)


def _by_draft(compared: Compared) -> str:
    counts = {
        draft: sum(row.telling for row in compared.rows if row.draft == draft) for draft in (NO_DRAFT, WINDOW_DRAFT)
    }
    refused = sum(bool(row.before.refused) for row in compared.rows if not row.before.unsaid)
    after = sum(bool(row.after.refused) for row in compared.rows if not row.after.unsaid)
    unsaid = sum(row.before.unsaid or row.after.unsaid for row in compared.rows)
    return (
        f"Without a draft {counts[NO_DRAFT]} change, with one {counts[WINDOW_DRAFT]}. "
        f"Refused before: {refused}; after: {after}." + (f" Inconclusive: {unsaid}." if unsaid else "")
    )


def _cells(row: Row) -> tuple[str, ...]:
    before, after = row.before, row.after
    return (
        row.model, row.draft, _groups(before), _groups(after), _pair(before.block_bytes, after.block_bytes),
        _percent(before.tokens, after.tokens),
    )  # fmt: skip


def _groups(figures: Figures) -> str:
    if figures.refused:
        reason = figures.refused.replace("|", "/")
        word = "inconclusive: " if figures.unsaid else "refused at "
        return word + (reason if len(reason) <= MAX_REASON else reason[:MAX_REASON] + "…")
    return f"{len(figures.groups)}: {figures.shape()}"


def _pair(before: int | None, after: int | None) -> str:
    first, second = ("–" if value is None else f"{value:,}" for value in (before, after))
    return first if first == second else f"{first} → {second}"


def _percent(before: int | None, after: int | None) -> str:
    if before is None or after is None or not before:
        return "–"
    return f"{100 * (after - before) / before:+.1f} %"
