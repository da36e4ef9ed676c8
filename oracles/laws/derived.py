"""Laws over a second answer: how a plan may change when one thing in the case does (``oracles.derived``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from msgspec import structs

from oracles.case import AttentionSpec, mode_of
from oracles.compare import outcome_difference
from oracles.derived import MORE_MEMORY, PERMUTED, RENAMED, WIDER_DCP, new_name
from oracles.geometry import is_split_by_dcp
from oracles.law import Breach, Evidence, law
from oracles.laws.reading import group_specs
from oracles.plan import Group, Outcome, Plan, Planned, Refused, plan_of, refusal_at


def _answered(name: str) -> Callable[[Evidence], bool]:
    """Whether both the case and the derived case ``name`` were answered."""

    def applies(evidence: Evidence) -> bool:
        answers = (evidence.outcome, evidence.derived.get(name))
        return all(isinstance(answer, Planned | Refused) for answer in answers)

    return applies


@law("G8", applies=_answered(RENAMED))
def renaming_renames(evidence: Evidence) -> Iterator[Breach]:
    """Renaming the layers renames the plan and changes nothing else.

    A plan that hangs on names differs between two models that are the same.
    """
    expected = with_names(evidence.outcome, new_name)
    found = outcome_difference(expected, evidence.derived[RENAMED])
    if found is not None:
        yield Breach(
            law="G8", path=found.path, error=found.error, frame=found.frame,
            detail=f"under other layer names {found.path} is {found.obtained}, before {found.expected}",
        )  # fmt: skip


def with_names(outcome: Outcome, rename: Callable[[str], str]) -> Outcome:
    """``outcome``, of a planner that answered, with every layer name changed by ``rename``."""
    plan = plan_of(outcome)
    assert plan is not None and isinstance(outcome, Planned | Refused)

    def names(old: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(rename(name) for name in old)

    groups = plan.groups and tuple(
        structs.replace(g, layers=names(g.layers), member_layers=names(g.member_layers)) for g in plan.groups
    )
    placement = plan.placement and tuple(
        structs.replace(
            p,
            records=tuple(structs.replace(r, layers=names(r.layers)) for r in p.records),
            group_layers=tuple(names(one) for one in p.group_layers),
        )
        for p in plan.placement
    )
    return structs.replace(outcome, plan=structs.replace(plan, groups=groups, placement=placement))


@law("G11", applies=_answered(PERMUTED))
def permuting_equal_layers_changes_no_shape(evidence: Evidence) -> Iterator[Breach]:
    """Exchanging layers that are equal changes no group's shape.

    Which of two equal layers comes first says nothing about what they cache.
    """
    before, after = plan_of(evidence.outcome), plan_of(evidence.derived[PERMUTED])
    assert before is not None and after is not None
    if (before.groups is None) != (after.groups is None):
        yield Breach(law="G11", path="groups", detail="refused in one order of equal layers, planned in the other")
        return
    shapes = [Counter(_shape(group) for group in plan.groups or ()) for plan in (before, after)]
    if shapes[0] != shapes[1]:
        gone = next(iter(shapes[0] - shapes[1]), None)
        new = next(iter(shapes[1] - shapes[0]), None)
        yield Breach(law="G11", path="groups[].shape", detail=f"a group {gone} became {new}")


def _shape(group: Group) -> tuple[str, int, int, int]:
    return group.kind, len(group.layers), group.block_size, group.page_bytes


@law("G13", applies=_answered(WIDER_DCP))
def unsplit_layers_ignore_dcp(evidence: Evidence) -> Iterator[Breach]:
    """The plan of a replicated or recurrent layer does not depend on the DCP size.

    Every rank holds all of it, whatever their number.
    """
    before, after = plan_of(evidence.outcome), plan_of(evidence.derived[WIDER_DCP])
    assert before is not None and after is not None
    if before.groups is None or after.groups is None:
        return
    modes = {layer.name: mode_of(evidence.case.spec_of(layer)) for layer in evidence.case.layers}
    lengths = [plan.capacity and plan.capacity.model_len for plan in (before, after)]
    facts = [_unsplit_facts(plan, modes, widths=lengths[0] == lengths[1]) for plan in (before, after)]
    for name in facts[0].keys() & facts[1].keys():
        for field, value in facts[0][name].items():
            other = facts[1][name].get(field, value)
            if other != value:
                yield Breach(
                    law="G13", path=field, detail=f"{name}: {field} is {value}, with twice the DCP ranks {other}"
                )  # fmt: skip
                return


def _unsplit_facts(plan: Plan, modes: Mapping[str, str], *, widths: bool) -> dict[str, dict[str, object]]:
    """What must not change. Tables are compared for one model length only: an automatic one grows with dcp."""
    assert plan.groups is not None
    found: dict[str, dict[str, object]] = {}
    for at, group in enumerate(plan.groups):
        for name, spec in group_specs(plan, group):
            if modes.get(name) == "sharded":
                continue
            facts: dict[str, object] = {"groups[].spec": spec, "groups[].span_tokens": group.span_tokens}
            if widths and plan.sizes is not None and at < len(plan.sizes.widths):
                facts["sizes.widths"] = plan.sizes.widths[at]
            found[name] = facts
    return found


@law("C5", applies=lambda e: _answered(MORE_MEMORY)(e) or _answered(WIDER_DCP)(e))
def more_never_means_less(evidence: Evidence) -> Iterator[Breach]:
    """More memory never means less capacity, and neither do more DCP ranks where every cache is sharded.

    An operator who adds either expects to serve at least what was served before.
    """
    if _answered(MORE_MEMORY)(evidence):
        yield from _fewer(evidence, evidence.derived[MORE_MEMORY], "more_memory", "twice the memory")
    split = all(not isinstance(spec, AttentionSpec) or is_split_by_dcp(spec) for spec in evidence.case.specs)
    if split and _answered(WIDER_DCP)(evidence) and not evidence.case.settings.auto_fit:
        grown = plan_of(evidence.derived[WIDER_DCP])
        if grown is not None and grown.capacity is not None:  # a window may not be split at all: refused, not fewer
            yield from _fewer(evidence, evidence.derived[WIDER_DCP], "wider_dcp", "twice the DCP ranks")


def _fewer(evidence: Evidence, other: Outcome, path: str, words: str) -> Iterator[Breach]:
    before, after = plan_of(evidence.outcome), plan_of(other)
    if before is None or after is None:
        return
    refusal = refusal_at(other, "place")
    if before.placement is not None and refusal is not None:
        yield Breach(law="C5", path=f"{path}.refusal", error=refusal.type, detail=f"refused with {words}")
    elif before.capacity is not None and after.capacity is not None:
        length = after.capacity.model_len < before.capacity.model_len
        same = after.capacity.model_len == before.capacity.model_len
        if length or (same and after.capacity.tokens < before.capacity.tokens):
            yield Breach(
                law="C5", path=f"{path}.tokens",
                detail=f"{after.capacity.tokens} tokens with {words}, {before.capacity.tokens} without",
            )  # fmt: skip
