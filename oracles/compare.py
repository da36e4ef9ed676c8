"""Comparison of plans, and the verdict on a case from what both planners broke.

Paths name fields, never indices, layers or sizes: ``groups[].block_size``. They are the stable half of a
fingerprint.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from oracles.case import SPEC_CLASSES
from oracles.law import Breach, Contract, Side, is_no_later, stage_of
from oracles.plan import (
    Capacity,
    Died,
    Group,
    Outcome,
    Placement,
    Plan,
    Planned,
    Record,
    Refused,
    Sizes,
    TimedOut,
    Unsupported,
    plan_of,
)

VerdictName = Literal["agree", "fixed", "regression", "unfixed", "dispute", "inconclusive"]
VERDICTS: tuple[VerdictName, ...] = ("agree", "fixed", "regression", "unfixed", "dispute", "inconclusive")
FAILING: frozenset[VerdictName] = frozenset({"regression", "unfixed", "dispute"})
"""Verdicts that make a run end with exit code 1."""


class Difference(Struct, frozen=True, kw_only=True):
    """The first field in which two answers differ, in the order in which a reader would look."""

    path: str
    expected: str
    obtained: str
    error: str = ""
    frame: str = ""


class Finding(Struct, frozen=True, kw_only=True):
    """A broken law or comparison, with the verdict on it and the planner that did it. ``beside`` is what a reader must
    know of the other planner.
    """

    law: str
    verdict: VerdictName
    planner: Side
    fingerprint: str
    summary: str
    first_difference: str
    error: str = ""
    frame: str = ""
    beside: str = ""

    @property
    def sentence(self) -> str:
        """What happened, with what to know of the other planner."""
        return sentence(self.summary, self.beside)


class Verdict(Struct, frozen=True, kw_only=True):
    """What is said of one case: the gravest of its findings, or why nothing can be said."""

    name: VerdictName
    findings: tuple[Finding, ...] = ()
    reason: str = ""


def sentence(summary: str, beside: str) -> str:
    """A summary with what stands beside it."""
    return f"{summary} ({beside})" if beside else summary


def show(value: Any) -> str:
    """A value in a sentence."""
    text = ", ".join(value) if isinstance(value, tuple) and all(isinstance(v, str) for v in value) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}…"


def differ(path: str, expected: Any, obtained: Any) -> Difference | None:
    """A difference at ``path``, unless the two are equal."""
    if expected == obtained:
        return None
    return Difference(path=path, expected=show(expected), obtained=show(obtained))


def cause_of(outcome: Outcome) -> tuple[str, str, str]:
    """(stage, error type, planner function) of an outcome that is no full plan; empty strings for one that is."""
    if isinstance(outcome, Refused):
        first = outcome.first
        return first.stage, first.type, planner_function(first.frames)
    if isinstance(outcome, Died):
        return "outcome", f"died: {outcome.cause}", ""
    if isinstance(outcome, TimedOut):
        return "outcome", "timed out", ""
    if isinstance(outcome, Unsupported):
        return "outcome", f"unsupported: {outcome.field}", ""
    return "", "", ""


def planner_function(frames: tuple[str, ...]) -> str:
    """The innermost function of vLLM in a refusal's frames, without its line."""
    return frames[-1].rsplit(":", 1)[0].split(":", 1)[-1] if frames else ""


def outcome_difference(expected: Outcome, obtained: Outcome, *, drafts: bool = True) -> Difference | None:
    """The first difference between two outcomes. A refusal by both for the same cause is agreement."""
    first, second = cause_of(expected), cause_of(obtained)
    if first[:2] != second[:2]:
        return Difference(
            path="outcome", expected=_outcome_words(expected), obtained=_outcome_words(obtained),
            error=f"{first[1]}|{second[1]}", frame=second[2] or first[2],
        )  # fmt: skip
    a, b = plan_of(expected), plan_of(obtained)
    if a is None or b is None:
        return None
    return plan_difference(a, b, drafts=drafts)


def _outcome_words(outcome: Outcome) -> str:
    stage, error, _ = cause_of(outcome)
    return f"refused to {stage} ({error})" if isinstance(outcome, Refused) else error or "planned"


def plan_difference(expected: Plan, obtained: Plan, *, drafts: bool = True) -> Difference | None:
    """The first difference between two plans, stage by stage."""
    if expected.groups is not None and obtained.groups is not None:
        found = groups_difference((expected, expected.groups), (obtained, obtained.groups), drafts=drafts)
        if found is not None:
            return found
    elif (expected.groups is None) != (obtained.groups is None):
        return differ("groups", expected.groups is not None, obtained.groups is not None)
    if expected.placement is not None and obtained.placement is not None:
        found = _placement_difference(expected.placement, obtained.placement)
        if found is not None:
            return found
    for stage in ("sizes", "capacity"):
        a, b = getattr(expected, stage), getattr(obtained, stage)
        if a is not None and b is not None and a != b:
            return fields_difference(stage, a, b)
    return None


_GROUP_FIELDS = ("kind", "block_size", "span_tokens", "page_bytes", "sharded", "extra")


def groups_difference(
    expected: tuple[Plan, tuple[Group, ...]], obtained: tuple[Plan, tuple[Group, ...]], *, drafts: bool = True
) -> Difference | None:
    """The first difference between two lists of groups, each with the plan that holds its specs."""
    (plan_a, groups_a), (plan_b, groups_b) = expected, obtained
    if len(groups_a) != len(groups_b):
        return differ("groups.count", len(groups_a), len(groups_b))
    for a, b in zip(groups_a, groups_b, strict=True):
        if a.layers != b.layers:
            return differ("groups[].layers", a.layers, b.layers)
    for a, b in zip(groups_a, groups_b, strict=True):
        for field in _GROUP_FIELDS:
            found = differ(f"groups[].{field}", getattr(a, field), getattr(b, field))
            if found is not None:
                return found
        if a.is_wrapper != b.is_wrapper:
            return differ("groups[].wrapper", a.is_wrapper, b.is_wrapper)
        if drafts and a.draft != b.draft:
            return differ("groups[].draft", a.draft, b.draft)
        found = _spec_difference(plan_a, a, plan_b, b)
        if found is not None:
            return found
    return None


def _spec_difference(plan_a: Plan, a: Group, plan_b: Plan, b: Group) -> Difference | None:
    indices_a = a.members if a.spec is None else (a.spec,)
    indices_b = b.members if b.spec is None else (b.spec,)
    if len(indices_a) != len(indices_b):
        return differ("groups[].members", len(indices_a), len(indices_b))
    for at_a, at_b in zip(indices_a, indices_b, strict=True):
        one, other = plan_a.specs[at_a], plan_b.specs[at_b]
        if one != other:
            if type(one) is not type(other):
                return differ("groups[].spec.kind", type(one).__name__, type(other).__name__)
            return fields_difference("groups[].spec", one, other)
    return None


def fields_difference(path: str, expected: Struct, obtained: Struct) -> Difference | None:
    """The first field in which two structs of one type differ."""
    for name in expected.__struct_fields__:
        found = differ(f"{path}.{name}", getattr(expected, name), getattr(obtained, name))
        if found is not None:
            return found
    return None


def _placement_difference(expected: tuple[Placement, ...], obtained: tuple[Placement, ...]) -> Difference | None:
    if len(expected) != len(obtained):
        return differ("placement.workers", len(expected), len(obtained))
    for a, b in zip(expected, obtained, strict=True):
        if a == b:
            continue
        if a.num_blocks != b.num_blocks:
            return differ("placement[].num_blocks", a.num_blocks, b.num_blocks)
        if len(a.records) != len(b.records):
            return differ("placement[].records.count", len(a.records), len(b.records))
        for one, other in zip(a.records, b.records, strict=True):
            if one != other:
                return fields_difference("placement[].records[]", one, other)
        return fields_difference("placement[]", a, b)
    return None


def difference_paths() -> frozenset[str]:
    """Every path that ``outcome_difference`` can give."""
    specs = {f"groups[].spec.{name}" for one in SPEC_CLASSES.values() for name in one.__struct_fields__}
    kept = {"placement[]": Placement, "placement[].records[]": Record, "sizes": Sizes, "capacity": Capacity}
    return frozenset({
        "outcome", "groups", "groups.count", "groups[].layers", *(f"groups[].{name}" for name in _GROUP_FIELDS),
        "groups[].wrapper", "groups[].draft", "groups[].members", "groups[].spec.kind", *specs,
        "placement.workers", "placement[].records.count",
        *(f"{path}.{name}" for path, kind in kept.items() for name in kind.__struct_fields__),
    })  # fmt: skip


def judge(
    unpatched: list[Breach],
    patched: list[Breach],
    outcomes: tuple[Outcome, Outcome],
    in_parts: Iterable[Breach] = (),
    unruled: str = "",
) -> Verdict:
    """The verdict on one case from the breaches of both planners (DESIGN 6).

    A breach by both alike is *unfixed*. One by the patched planner is a *dispute* when the unpatched one breaks
    something else in that stage or before it, else a *regression*. One by the unpatched planner alone is *fixed*,
    whatever else the patched one breaks, unless its being refused or dead is what it is told of and keeps it from
    that stage: a patch that refuses everything fixes nothing.

    Breaches of the reference count like those of laws. ``in_parts`` are breaches of the unpatched planner on the
    parts of a mixed case: a fault that it has there, and that the patched planner meets because it plans the
    parts, is no regression. ``unruled`` says why the reference is silent: then a case without findings is
    inconclusive.
    """
    findings: list[Finding] = []
    keys_unpatched = {_key(b) for b in (*unpatched, *in_parts)}
    keys_patched = {_key(b) for b in patched}
    own = [b for b in patched if _key(b) not in keys_unpatched]
    for breach in patched:
        before = any(is_no_later(other, breach) for other in unpatched)
        name: VerdictName = "unfixed" if breach not in own else "dispute" if before else "regression"
        findings.append(_finding(breach, name, "patched"))
    for breach in unpatched:
        if _key(breach) in keys_patched:
            continue  # told once, of the patched planner
        if own and not _has_stage(outcomes[1], stage_of(breach)):
            continue
        findings.append(_finding(breach, "fixed", "unpatched", _beside(outcomes[1])))
    unsupported = [o for o in outcomes if isinstance(o, Unsupported)]
    if findings:
        worst = max((f.verdict for f in findings), key=gravity)
        return Verdict(name=worst, findings=tuple(findings))
    if unsupported:
        return Verdict(name="inconclusive", reason=f"unsupported: {unsupported[0].field}")
    if unruled:
        return Verdict(name="inconclusive", reason=unruled)
    return Verdict(name="agree")


_GRAVITY: dict[VerdictName, int] = {
    "agree": 0, "inconclusive": 1, "fixed": 2, "unfixed": 3, "dispute": 4, "regression": 5,
}  # fmt: skip


def gravity(name: VerdictName) -> int:
    """How grave a verdict is beside others."""
    return _GRAVITY[name]


def _key(breach: Breach) -> tuple[str, str, str, str]:
    return breach.law, breach.path, breach.error, breach.frame


_PART_OF_STAGE = {"group": "groups", "place": "placement", "size": "sizes", "capacity": "capacity"}


def _has_stage(outcome: Outcome, stage: str) -> bool:
    """Whether a planner answered in a stage."""
    plan, part = plan_of(outcome), _PART_OF_STAGE.get(stage)
    return plan is not None and (part is None or getattr(plan, part) is not None)


def _beside(patched: Outcome) -> str:
    """A patched planner that lacks a fault may have no plan either, which is another thing than a better plan."""
    return f"the patched planner refuses the model: {patched.first.type}" if isinstance(patched, Refused) else ""


def _finding(breach: Breach, verdict: VerdictName, side: Side, beside: str = "") -> Finding:
    return Finding(
        law=breach.law, verdict=verdict, planner=side, fingerprint=breach.fingerprint(side),
        summary=breach.detail, first_difference=breach.path, error=breach.error, frame=breach.frame, beside=beside,
    )  # fmt: skip


__all__ = [
    "FAILING", "VERDICTS", "Contract", "Difference", "Finding", "Planned", "Verdict", "VerdictName",
    "differ", "difference_paths", "gravity", "groups_difference", "judge", "outcome_difference", "plan_difference",
]  # fmt: skip
