"""What several laws read from a plan: a group's specs, a layer's spec, the facts a layer came with."""

from __future__ import annotations

from msgspec import structs

from oracles.case import Case, MlaSpec, SlidingWindowMlaSpec, Spec
from oracles.geometry import content_bytes, page_bytes
from oracles.plan import Group, Plan


def group_specs(plan: Plan, group: Group) -> list[tuple[str, Spec]]:
    """Each layer of a group with the spec the plan gives it."""
    if group.spec is not None:
        return [(name, plan.specs[group.spec]) for name in group.layers]
    names = group.member_layers or group.layers
    return [(name, plan.specs[at]) for name, at in zip(names, group.members, strict=False)]


def first_specs(plan: Plan) -> list[Spec]:
    """One spec of each group, which stands for it in the scheduler."""
    assert plan.groups is not None
    return [group_specs(plan, group)[0][1] for group in plan.groups if group_specs(plan, group)]


def planned_specs(plan: Plan) -> dict[str, tuple[int, Spec]]:
    """Each layer's group (by index) and planned spec."""
    assert plan.groups is not None
    return {name: (at, spec) for at, group in enumerate(plan.groups) for name, spec in group_specs(plan, group)}


def own_specs(case: Case) -> dict[str, Spec]:
    """Each layer's spec as its backend states it, an alignment written as the padding it makes."""
    table = [_aligned(spec) for spec in case.specs]
    return {layer.name: table[layer.spec] for layer in case.layers}


def _aligned(spec: Spec) -> Spec:
    if isinstance(spec, MlaSpec | SlidingWindowMlaSpec) and spec.alignment is not None:
        size = page_bytes(spec)
        if size != content_bytes(spec):
            return structs.replace(spec, page_size_padded=size)
    return spec
