"""What serving a workload must keep, as named checks; the worker reports which was broken (``tree_serve``)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fuzz.planners.workload import Served, Violation
from oracles.case import Case
from oracles.law import Breach, Severity, stage_of


class Check(Struct, frozen=True, kw_only=True):
    """A named check: its text, its reason, how grave a breach is."""

    name: str
    text: str
    reason: str
    severity: Severity = "fault"


CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        Check(
            name="Q1", text="The cache manager takes every call that the scheduler makes on an accepted plan.",
            reason="An exception here ends the engine, in the middle of serving.",
        ),
        Check(
            name="Q2", text="Block ids lie within the pool, and a token that is written or read has no null block.",
            reason="Otherwise one request writes over what all others read as padding.",
        ),
        Check(
            name="Q3", text="Free blocks, held blocks and the null block are all blocks; a count is what is held.",
            reason="A block that leaks is lost until the engine restarts; one that is lent twice is overwritten.",
        ),
        Check(
            name="Q4", text="A block has one group; requests share it only at the same place of a common prefix.",
            reason="All groups lie over the same bytes, so two groups in one block destroy each other.",
        ),
        Check(
            name="Q5", text="Every token that a layer's own spec makes visible has a block, held for it.",
            reason="The worker's table only grows: a block given back while a layer still reads it is another's soon.",
        ),
        Check(
            name="Q6", text="Every visible token's bytes are still there, on every rank.",
            reason="Otherwise the model attends to another request's tokens and answers wrong text.",
        ),
        Check(
            name="Q7", text="A prefix-cache hit ends on a boundary and gives blocks that hold this request's prefix.",
            reason="A wrong prefix is another user's text.",
        ),
        Check(
            name="Q8", text="A refused allocation changes nothing but blocks that are out of sight.",
            reason="The scheduler asks again later; what changed is lost or counted twice.",
        ),
        Check(
            name="Q9", text="With all requests gone, every block is free.",
            reason="Blocks that stay held are lost until the engine restarts.",
        ),
        Check(
            name="Q10", text="The smallest pool that is accepted serves one request of the model length.",
            reason="Otherwise the engine starts, and the first long request waits for ever.",
        ),
        Check(
            name="Q11", text="A pool serves as many requests of the model length at once as is claimed of it.",
            reason="The claim is what an operator sizes a service by.",
        ),
    )
}  # fmt: skip
"""Every check by name."""


def breaches_of(case: Case, served: Served) -> tuple[Breach, ...]:
    """The broken checks, each path once. Names, sizes and ids stand in the detail only."""
    del case  # the worker judged visibility by the case's own specs; nothing is left to compare
    found: dict[tuple[str, str, str, str], Breach] = {}
    for one in served.violations:
        key = (one.check, one.path, one.error, one.frame)
        found.setdefault(key, Breach(
            law=one.check, path=one.path, detail=_detail(one), error=one.error, frame=one.frame,
        ))  # fmt: skip
    return tuple(found.values())


def severity_of(breach: Breach) -> Severity:
    """How grave a breach is: what costs accepted drafts or computing again, not right answers, is quality."""
    return "quality" if breach.path.endswith((".draft", ".preempted")) else CHECKS[breach.law].severity


CAPACITY_CHECKS = frozenset({"Q10", "Q11"})
"""What serving says of the plan's capacity, of which laws speak too."""


def untold(broken: Sequence[Breach], served: Sequence[Breach]) -> list[Breach]:
    """The breaches of ``served`` that do not follow from what is ``broken`` in the plan that was served: none of a plan
    that is wrong itself, and of one whose capacity alone is misjudged those that are not about capacity.
    """
    stages = {stage_of(breach) for breach in broken}
    if stages - {"capacity"}:
        return []
    return [breach for breach in served if not stages or breach.law not in CAPACITY_CHECKS]


def _detail(one: Violation) -> str:
    where = [f"step {one.turn}"] if one.turn >= 0 else []
    if one.group >= 0:
        where.append(f"group {one.group}")
    return f"{', '.join(where)}: {one.message}" if where else one.message
