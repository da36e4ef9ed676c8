"""The end of a run as one HTML page that needs nothing else: no script, no font, no network.

Each finding shows its smallest case, the groups of both planners side by side, and a drawing of the pools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import jinja2
from markupsafe import Markup, escape
from msgspec import Struct

from fuzz.campaign.events import Witness
from fuzz.export.render import outcome_words, settings_words
from fuzz.report.details import Detail
from fuzz.report.drawing import Drawing, Pool, draw
from fuzz.report.plans import mode_of_group
from fuzz.report.summary import (
    WORDS,
    Summary,
    conclusion,
    law_reason,
    law_text,
    reason_known,
    visible,
)
from fuzz.report.svg import DEFS, pool_svg
from oracles.case import Case, kind_of, mode_of
from oracles.geometry import page_bytes
from oracles.plan import Outcome, Plan, Refused, plan_of

MAX_GROUPS = 60
"""Rows of a table of groups; the minimal case of a finding has a handful."""


class Section(Struct, frozen=True, kw_only=True):
    """Findings told together; those that need attention are shown opened, and the known ones not even listed."""

    title: str
    meaning: str
    findings: tuple[Witness, ...]
    opened: bool = False
    listed: bool = True


class Side(Struct, frozen=True, kw_only=True):
    """One planner's answer to one case."""

    role: str
    address: str
    outcome: str
    refusals: tuple[str, ...]
    groups: tuple[dict[str, Any], ...]
    groups_left_out: int
    facts: tuple[str, ...]
    pools: tuple[dict[str, Any], ...]
    pools_left_out: int


def render(summary: Summary, details: Mapping[str, Detail], replay_arguments: str = "") -> str:
    """The page. ``details`` by case id; a finding without any is told in words only."""
    return _environment().get_template("report.html.j2").render(
        summary=summary, conclusion=conclusion(summary), words=WORDS, sections=_sections(summary),
        cases={identity: _case(detail.case) for identity, detail in details.items()},
        sides={identity: _sides(summary, detail) for identity, detail in details.items()},
        law_text=law_text, law_reason=law_reason, anchor=anchor, replay_arguments=replay_arguments,
        reason_known=lambda witness: reason_known(summary, witness), defs=DEFS, version=version("kvfuzz"),
        total=max(1, sum(summary.verdicts.values())),
    )  # fmt: skip


def anchor(witness: Witness) -> str:
    """The fragment that leads to a finding; the same in every run that sees the fault."""
    return f"f-{witness.fingerprint}-{witness.verdict}"


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fuzz"), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, autoescape=True,
    )  # fmt: skip
    # Whatever is printed goes through here: text of planners and layer names may turn or hide what stands beside it.
    made.finalize = lambda value: visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
    made.filters["ticks"], made.filters["breakable"] = _ticks, _breakable
    made.filters["count"] = lambda number, noun: f"{number:,} {noun}{'' if number == 1 else 's'}"
    return made


def _ticks(text: str) -> Markup:
    """A text of ours, what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def _breakable(text: str) -> Markup:
    """Names and kinds, which may break after their joints."""
    return Markup(re.sub("([_+.])", r"\1<wbr>", str(escape(visible(text)))))


def _sections(summary: Summary) -> list[Section]:
    sections = [
        Section(title="Needs attention", meaning="the patched planner breaks a law", findings=tuple(summary.open),
                opened=True),
        Section(title="Fixed by the patch", meaning="only the unpatched planner breaks a law",
                findings=tuple(summary.fixed)),
        Section(title="Known", meaning="listed in known.toml; counted, never hidden", findings=tuple(summary.listed),
                listed=False),
    ]  # fmt: skip
    return [section for section in sections if section.findings]


def _case(case: Case) -> dict[str, Any]:
    rows = []
    for at, spec in enumerate(case.specs):
        mine = [layer for layer in case.layers if layer.spec == at]
        rows.append({
            "count": len(mine), "names": _names([layer.name for layer in mine]), "kind": kind_of(spec),
            "block": spec.block_size, "page": page_bytes(spec), "mode": mode_of(spec),
            "draft": any(layer.draft for layer in mine),
        })  # fmt: skip
    return {"rows": rows[:MAX_GROUPS], "left_out": max(0, len(rows) - MAX_GROUPS),
            "settings": settings_words(case.settings)}  # fmt: skip


def _sides(summary: Summary, detail: Detail) -> list[Side]:
    addresses = {planner.role: planner.address for planner in summary.planners}
    rows = [_groups(detail.case, outcome) for outcome in (detail.unpatched, detail.patched)]
    both = all(rows)
    sides = []
    for role, outcome, mine, other in (
        ("unpatched", detail.unpatched, rows[0], rows[1]), ("patched", detail.patched, rows[1], rows[0]),
    ):  # fmt: skip
        theirs = [_identity(row) for row in other]
        sides.append(_side(role, addresses.get(role, ""), detail.case, outcome, [
            {**row, "differs": both and _identity(row) not in theirs} for row in mine[:MAX_GROUPS]
        ], max(0, len(mine) - MAX_GROUPS)))  # fmt: skip
    return sides


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """A group without its number: the same group in another place is no difference worth colour."""
    return tuple(value for key, value in row.items() if key != "number")


def _groups(case: Case, outcome: Outcome) -> list[dict[str, Any]]:
    plan = plan_of(outcome)
    if plan is None or plan.groups is None:
        return []
    return [
        {
            "number": number, "all": group.layers, "names": _names(group.layers), "count": len(group.layers),
            "kind": group.kind + (" (uniform)" if group.is_wrapper else ""), "block": group.block_size,
            "span": group.span_tokens, "page": group.page_bytes, "mode": mode_of_group(plan, group, case),
            "draft": group.draft,
        }
        for number, group in enumerate(plan.groups)
    ]  # fmt: skip


def _side(role: str, address: str, case: Case, outcome: Outcome, groups: list[dict[str, Any]], left_out: int) -> Side:
    plan = plan_of(outcome)
    drawing = draw(case, plan) if plan is not None else None
    refusals = tuple(
        f"refused at {r.stage}: {r.type}: {visible(r.message)[:400] or '(no message)'}"
        + (f" (in {r.frames[-1]})" if r.frames else "")
        for r in outcome.refusals
    ) if isinstance(outcome, Refused) else ()  # fmt: skip
    return Side(
        role=role, address=address, outcome="" if refusals else outcome_words(outcome), refusals=refusals,
        groups=tuple(groups), groups_left_out=left_out, facts=_facts(plan),
        pools=_pools(drawing), pools_left_out=drawing.pools_left_out if drawing is not None else 0,
    )  # fmt: skip


def _facts(plan: Plan | None) -> tuple[str, ...]:
    facts = []
    if plan is not None and plan.sizes is not None:
        widths = ", ".join("?" if width is None else f"{width:,}" for width in plan.sizes.widths)
        facts.append(
            f"scheduler block {plan.sizes.scheduler_block:,}, hash block {plan.sizes.hash_block:,} tokens; "
            f"table widths {widths}"
        )
    if plan is not None and plan.capacity is not None:
        facts.append(
            f"capacity {plan.capacity.tokens:,} tokens, {plan.capacity.concurrency:.2f} requests of "
            f"{plan.capacity.model_len:,}"
        )
    return tuple(facts)


def _pools(drawing: Drawing | None) -> tuple[dict[str, Any], ...]:
    if drawing is None:
        return ()
    return tuple(
        {"caption": _caption(pool), "svg": pool_svg(pool), "overlaps": [" and ".join(p) for p in pool.overlaps[:5]],
         "groups_left_out": pool.groups_left_out, "foreign": _names(pool.foreign)}
        for pool in drawing.pools
    )  # fmt: skip


def _caption(pool: Pool) -> str:
    first, last = pool.workers[0], pool.workers[-1]
    who = f"worker {first}" if first == last else f"workers {first} to {last} alike" if (
        last - first + 1 == len(pool.workers)
    ) else f"workers {', '.join(map(str, pool.workers))} alike"  # fmt: skip
    each = pool.size // pool.num_blocks if pool.num_blocks else 0
    return f"{who}: {pool.num_blocks:,} blocks of {each:,} bytes"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"
