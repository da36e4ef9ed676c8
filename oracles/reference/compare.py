"""A planner's outcome against the reference, stage by stage, to the first difference of each stage.

What is compared is what a plan *means*: where each layer's pages lie, not how records are cut; a padding, not
whether it came from an alignment. A refusal is compared by its stage and, where both are typed, by its type; that
it should have a type is law R1.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from oracles.case import MlaSpec, SlidingWindowMlaSpec, Spec
from oracles.compare import Difference, differ, fields_difference, groups_difference, planner_function
from oracles.law import TYPED_REFUSALS, Breach, Evidence
from oracles.plan import Group, Outcome, Placement, Plan, Planned, Refused, Stage, owner_of, plan_of, refusal_at
from oracles.reference.plan import Unruled, expected_plan
from oracles.reference.rules import RuleSet

STAGE_LAWS: tuple[tuple[Stage, str], ...] = (
    ("input", "reference.place"), ("group", "reference.group"), ("place", "reference.place"),
    ("size", "reference.size"), ("capacity", "reference.capacity"),
)  # fmt: skip
"""The stages in order, and the name under which a difference there is reported."""


def reference_breaches(evidence: Evidence, rules: RuleSet) -> list[Breach]:
    """How the outcome differs from the reference; see ``compare_with``, which also tells why it is silent."""
    return compare_with(expected_plan(evidence.case, rules, evidence.contract), evidence.outcome)


def compare_with(expected: Outcome | Unruled, obtained: Outcome) -> list[Breach]:
    """The breach between an expectation and an outcome, at most one: the first difference.

    Later stages follow from earlier ones, so they are compared only while all before agree. There is no breach
    where no rule applies, as to a plan that has an owner, nor for an outcome that is no answer (laws judge those).
    """
    if isinstance(expected, Unruled) or not isinstance(obtained, Planned | Refused) or owner_of(obtained):
        return []
    for stage, law in STAGE_LAWS:
        found = _stage_difference(stage, expected, obtained)
        if found is not None:
            words = f"{found.path} is {found.obtained}, by the rules {found.expected}"
            return [Breach(law=law, path=found.path, error=found.error, frame=found.frame, detail=words)]
        if refusal_at(expected, stage) is not None:
            return []
    return []


def _stage_difference(stage: Stage, expected: Outcome, obtained: Outcome) -> Difference | None:
    wanted, got = refusal_at(expected, stage), refusal_at(obtained, stage)
    a, b = plan_of(expected), plan_of(obtained)
    assert a is not None and b is not None
    if wanted is not None:
        if got is None:
            return Difference(
                path=f"{stage}.refusal", expected=f"a refusal ({wanted.message})", obtained="a plan", error=wanted.type
            )  # fmt: skip
        if got.type in TYPED_REFUSALS and got.type != wanted.type:
            return Difference(
                path=f"{stage}.refusal.type", expected=wanted.type, obtained=got.type,
                error=got.type, frame=planner_function(got.frames),
            )  # fmt: skip
        return None
    if got is not None:
        if not _is_judged(stage, a):
            return None
        return Difference(
            path=f"{stage}.refusal", expected="a plan", obtained=f"{got.type}: {got.message.strip()[:120]}",
            error=got.type, frame=planner_function(got.frames),
        )  # fmt: skip
    if stage == "group" and a.groups is not None and b.groups is not None:
        return groups_difference(_settled(a, a.groups, b.groups), _settled(b, b.groups, b.groups))
    if stage == "place" and a.placement is not None and b.placement is not None:
        return placement_difference(a.placement, b.placement)
    if stage == "size" and a.sizes is not None and b.sizes is not None:
        return fields_difference("sizes", a.sizes, b.sizes)
    if stage == "capacity" and a.capacity is not None and b.capacity is not None:
        return fields_difference("capacity", a.capacity, b.capacity)
    return None


def _is_judged(stage: Stage, expected: Plan) -> bool:
    """Whether the rules have an answer at this stage."""
    answers = {"place": expected.placement, "size": expected.sizes, "capacity": expected.capacity}
    return stage not in answers or answers[stage] is not None


def _settled(plan: Plan, groups: tuple[Group, ...], said: tuple[Group, ...]) -> tuple[Plan, tuple[Group, ...]]:
    """A plan whose specs are written in one way, and its groups without what the planner has no word for."""
    silent = any(group.sharded is None for group in said)
    specs = tuple(plain_facts(spec) for spec in plan.specs)
    if silent:
        groups = tuple(structs.replace(group, sharded=None) for group in groups)
    return structs.replace(plan, specs=specs), groups


def plain_facts(spec: Spec) -> Spec:
    """``spec`` without what holds no information of its own.

    An ``alignment`` is spent once it has become a padding. ``non_causal`` of a latent layer is read by the engine
    from the layers before grouping, never from a group, so that losing it in a merge loses nothing.
    """
    if isinstance(spec, MlaSpec):
        return structs.replace(spec, alignment=None, non_causal=False)
    return structs.replace(spec, alignment=None) if isinstance(spec, SlidingWindowMlaSpec) else spec


def placement_difference(expected: tuple[Placement, ...], obtained: tuple[Placement, ...]) -> Difference | None:
    """The first difference between two placements, layer by layer."""
    if len(expected) != len(obtained):
        return differ("placement.workers", len(expected), len(obtained))
    for a, b in zip(expected, obtained, strict=True):
        for found in _pool_differences(a, b):
            return found
    return None


def _pool_differences(expected: Placement, obtained: Placement) -> Iterator[Difference]:
    wanted, got = _where(expected), _where(obtained)
    pairs: list[tuple[str, object, object]] = [
        ("placement[].group_layers", expected.group_layers, obtained.group_layers),
        ("placement[].num_blocks", expected.num_blocks, obtained.num_blocks),
        ("placement[].layers", sorted(wanted), sorted(got)),
        ("placement[].size", {r.size for r in expected.records}, {r.size for r in obtained.records}),
    ]
    for name in wanted.keys() & got.keys():
        pairs.append(("placement[].block_stride", wanted[name][1], got[name][1]))
        pairs.append(("placement[].start", wanted[name][0], got[name][0]))
        pairs.append(("placement[].shared_by", wanted[name][2], got[name][2]))
    pairs.append(("placement[].group_drafts", expected.group_drafts, obtained.group_drafts))
    for path, a, b in pairs:
        found = differ(path, a, b)
        if found is not None:
            yield found


def _where(placement: Placement) -> dict[str, tuple[int, int, frozenset[str]]]:
    """Each layer's first byte and block stride, and the layers that lie over the same tensor."""
    return {
        name: (
            record.offset + at * record.layer_stride,
            record.block_stride,
            frozenset(record.layers) if record.aliased else frozenset(),
        )
        for record in placement.records
        for at, name in enumerate(record.layers)
    }


def refusals_by(outcome: Outcome) -> Iterator[Breach]:
    """The breaches that ``compare_with`` may find in an outcome because it is refused, whatever is expected of it."""
    if isinstance(outcome, Refused):
        for stage, law in STAGE_LAWS:
            refusal = refusal_at(outcome, stage)
            if refusal is not None:
                for path in (f"{stage}.refusal", f"{stage}.refusal.type"):
                    frame = planner_function(refusal.frames)
                    yield Breach(law=law, path=path, error=refusal.type, frame=frame, detail=refusal.message)


__all__ = ["compare_with", "placement_difference", "plain_facts", "reference_breaches", "refusals_by"]
