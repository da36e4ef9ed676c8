"""A *law* is a property that every correct plan has, whatever the reference says.

A law is one function from evidence to breaches. Its docstring's first line is the text of the report; the rest is
the reason. ``applies`` says when it holds at all, so that silence about a case can be told from assent.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from oracles.case import Case, is_mixed
from oracles.plan import Died, Outcome, Plan, Planned, Refused, TimedOut, Unsupported, plan_of

Contract = Literal["native", "isolate"]
Side = Literal["unpatched", "patched"]
Severity = Literal["fault", "quality"]


TYPED_REFUSALS = frozenset({"ValueError", "NotImplementedError", "ValidationError"})
"""Errors by which a planner may refuse; pydantic's ValidationError is a ValueError."""


class Parts(Struct, frozen=True, kw_only=True):
    """Outcomes of the two one-mode parts of a mixed case, planned alone by the same planner, groups only."""

    sharded: Outcome
    replicated: Outcome


class Evidence(Struct, frozen=True, kw_only=True):
    """What one planner did with one case, and what it is to be compared with.

    ``second`` is the outcome of planning again in the same process when it differed; ``twin`` the outcome of
    the same planner in another process with another hash seed (None: not asked). ``counterpart`` is the
    unpatched planner's outcome, given to the patched planner only. ``derived`` has the same planner's outcomes of
    derived cases, by the names of ``oracles.derived``; a law over one that is absent does not apply.
    """

    case: Case
    contract: Contract
    outcome: Outcome
    changed: tuple[str, ...] = ()
    second: Outcome | None = None
    twin: Outcome | None = None
    parts: Parts | None = None
    counterpart: Outcome | None = None
    counterpart_parts: Parts | None = None
    derived: dict[str, Outcome] = {}

    @property
    def plan(self) -> Plan | None:
        """The plan, whole or in part."""
        return plan_of(self.outcome)

    @property
    def mixed(self) -> bool:
        """Whether the case holds replicated layers beside others."""
        return is_mixed(self.case)


class Breach(Struct, frozen=True, kw_only=True):
    """One way in which a law is broken.

    ``path`` is the first differing field without indices, names or sizes; with the error type and the planner's
    function it identifies the fault. ``detail`` is the sentence for this case.
    """

    law: str
    path: str
    detail: str
    error: str = ""
    frame: str = ""

    def fingerprint(self, side: Side) -> str:
        """Eight hex digits that name the fault: never a function of names, sizes or the order found."""
        text = "\n".join((self.law, side, self.path, self.error, self.frame))
        return hashlib.sha256(text.encode()).hexdigest()[:8]


_STAGE_OF_FAMILY = {"G": "group", "M": "place", "P": "place", "S": "size", "C": "capacity", "Q": "capacity"}
_STAGE_OF_FIELD = {"placement": "place", "placement[]": "place", "sizes": "size", "capacity": "capacity"}
_STAGE_ORDER = ("input", "group", "place", "size", "capacity")


def stage_of(breach: Breach) -> str:
    """The stage in which a breach lies: ``input``, ``group``, ``place``, ``size`` or ``capacity``."""
    if breach.law == "R1":
        return breach.path.removeprefix("refusal.")
    if breach.law.startswith("reference."):
        return breach.law.removeprefix("reference.")
    by_field = _STAGE_OF_FIELD.get(breach.path.partition(".")[0])
    return by_field or _STAGE_OF_FAMILY.get(breach.law[:1], "group")


def is_no_later(breach: Breach, other: Breach) -> bool:
    """Whether ``breach`` lies in the stage of ``other`` or before it, so that ``other`` may follow from it."""
    return _STAGE_ORDER.index(stage_of(breach)) <= _STAGE_ORDER.index(stage_of(other))


Check = Callable[[Evidence], Iterator[Breach]]


class Law(Struct, frozen=True, kw_only=True):
    """A named law: its text, when it applies, how grave a breach is, and the check."""

    name: str
    text: str
    reason: str
    severity: Severity
    applies: Callable[[Evidence], bool]
    check: Check


LAWS: dict[str, Law] = {}
"""Every law by name, in the order of registration (cheapest first)."""


def always(_: Evidence) -> bool:
    """The law holds for every outcome."""
    return True


def has_groups(evidence: Evidence) -> bool:
    """The law speaks of groups."""
    plan = evidence.plan
    return plan is not None and plan.groups is not None


def law(
    name: str, applies: Callable[[Evidence], bool] = always, severity: Severity = "fault"
) -> Callable[[Check], Check]:
    """Registers a check under ``name``; its docstring is the report's text and reason."""

    def register(check: Check) -> Check:
        text, _, reason = (inspect.getdoc(check) or "").partition("\n\n")
        if not text:
            raise TypeError(f"law {name} has no docstring, which is its report text")
        if name in LAWS:
            raise ValueError(f"law {name} is registered twice")
        LAWS[name] = Law(
            name=name, text=" ".join(text.split()), reason=" ".join(reason.split()),
            severity=severity, applies=applies, check=check,
        )  # fmt: skip
        return check

    return register


def broken_laws(evidence: Evidence, only: frozenset[str] | None = None) -> list[Breach]:
    """All breaches in ``evidence``, in the order of the laws; of ``only`` these laws when given."""
    outcome = evidence.outcome
    if isinstance(outcome, Unsupported):
        return []
    if isinstance(outcome, Died):
        return [Breach(law="alive", path="outcome", error=outcome.cause, detail=f"the planner died ({outcome.cause})")]
    if isinstance(outcome, TimedOut):
        return [
            Breach(law="alive", path="outcome", error="timed out",
                   detail=f"the planner gave no answer within {outcome.seconds:g} s")
        ]  # fmt: skip
    assert isinstance(outcome, Planned | Refused)
    return [
        breach
        for one in LAWS.values()
        if (only is None or one.name in only) and one.applies(evidence)
        for breach in one.check(evidence)
    ]
