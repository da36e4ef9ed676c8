"""Laws of grouping: which layers share a block table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oracles.case import mode_of
from oracles.compare import Difference, groups_difference, outcome_difference
from oracles.geometry import is_split_by_dcp
from oracles.law import Breach, Evidence, has_groups, law
from oracles.plan import Group, Outcome, Plan, Planned, Refused, plan_of, refusal_at


@law("G1", applies=has_groups)
def every_layer_once(evidence: Evidence) -> Iterator[Breach]:
    """Every layer is in exactly one group, and no group holds a layer that the model has not.

    A layer without a group has no cache; a layer in two has its positions written through two block tables.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    grouped = Counter(name for group in plan.groups for name in group.layers)
    known = {layer.name for layer in evidence.case.layers}
    for path, names, words in (
        ("groups[].layers.missing", known - grouped.keys(), "in no group"),
        ("groups[].layers.foreign", grouped.keys() - known, "in a group but not in the model"),
        ("groups[].layers.twice", {n for n, c in grouped.items() if c > 1}, "in more than one group"),
    ):
        if names:
            yield Breach(law="G1", path=path, detail=f"{_some(names)} {_is(names)} {words}")
    for group in plan.groups:
        if group.member_layers and set(group.member_layers) != set(group.layers):
            yield Breach(
                law="G1", path="groups[].members", detail=f"a uniform group of {_some(group.layers)} keeps specs for "
                f"{_some(group.member_layers)}"
            )  # fmt: skip
            return


@law("G2", applies=lambda e: has_groups(e) and any(g.sharded is not None for g in (e.plan and e.plan.groups) or ()))
def one_mode_per_group(evidence: Evidence) -> Iterator[Breach]:
    """A group has one replication mode, and its own flag says which.

    One block table cannot serve a cache that is split over the ranks and one that is whole on each of them.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    split = {layer.name: is_split_by_dcp(evidence.case.spec_of(layer)) for layer in evidence.case.layers}
    for group in plan.groups:
        modes = {split[name] for name in group.layers if name in split}
        if len(modes) > 1:
            yield Breach(
                law="G2", path="groups[].mode",
                detail=f"sharded and replicated layers share a group: {_some(group.layers)}",
            )  # fmt: skip
        elif modes and group.sharded is not None and group.sharded not in modes:
            says = "sharded" if group.sharded else "replicated"
            yield Breach(
                law="G2", path="groups[].sharded",
                detail=f"the group of {_some(group.layers)} says {says}, its layers are not",
            )  # fmt: skip


def _has_parts(evidence: Evidence) -> bool:
    return evidence.contract == "isolate" and evidence.mixed and evidence.parts is not None


@law("G6", applies=_has_parts)
def parts_are_planned_apart(evidence: Evidence) -> Iterator[Breach]:
    """Under `isolate` a mixed model's groups are those of its sharded part, then those of its replicated part.

    Planned together, the draft is stretched to the target's page, splits the target's groups, or makes the
    planner refuse a model that both parts would start with.
    """
    parts = evidence.parts
    assert parts is not None
    alone = [(mode, plan_of(o), o) for mode, o in (("sharded", parts.sharded), ("replicated", parts.replicated))]
    for mode, plan, outcome in alone:
        if plan is None or plan.groups is None:
            yield from _refused_alone(evidence, mode, outcome)
            return
    mixed = evidence.plan
    refusal = refusal_at(evidence.outcome, "group")
    if refusal is not None or mixed is None or mixed.groups is None:
        if refusal is not None:
            frame = refusal.frames[-1].split(":")[1] if refusal.frames else ""
            yield Breach(
                law="G6", path="outcome", error=refusal.type, frame=frame,
                detail=f"refused together ({refusal.type}: {_short(refusal.message)}), although each part plans alone",
            )  # fmt: skip
        return
    modes = {layer.name: mode_of(evidence.case.spec_of(layer)) for layer in evidence.case.layers}
    for mode, plan, _ in alone:
        assert plan is not None and plan.groups is not None
        mine = tuple(
            g for g in mixed.groups
            if any((modes.get(name) == "replicated") == (mode == "replicated") for name in g.layers)
        )  # fmt: skip
        found = groups_difference((plan, plan.groups), (mixed, mine), drafts=False)
        if found is not None:
            yield Breach(
                law="G6", path=f"{mode}.{found.path}", detail=_apart_words(mode, found, plan.groups, mine)
            )  # fmt: skip
            return
    order = [any(modes.get(name) == "replicated" for name in g.layers) for g in mixed.groups]
    if order != sorted(order):
        yield Breach(law="G6", path="groups.order", detail="replicated groups stand before sharded ones")


def _refused_alone(evidence: Evidence, mode: str, outcome: Outcome) -> Iterator[Breach]:
    """A part that is refused alone must make the whole refused."""
    refusal = refusal_at(outcome, "group")
    together = plan_of(evidence.outcome)
    if refusal is not None and together is not None and together.groups is not None:
        yield Breach(
            law="G6", path=f"{mode}.outcome", error=refusal.type,
            detail=f"the {mode} part is refused alone ({refusal.type}) but planned beside the other",
        )  # fmt: skip


def _apart_words(mode: str, found: Difference, alone: tuple[Group, ...], together: tuple[Group, ...]) -> str:
    other = "replicated" if mode == "sharded" else "sharded"
    if found.path == "groups.count":
        layers = sum(len(g.layers) for g in alone)
        return (
            f"the {layers} {mode} layers come in {_count(len(together), 'group')} beside the {other} ones, "
            f"alone in {_count(len(alone), 'group')}"
        )
    field = found.path.removeprefix("groups[].")
    if field == "layers":
        return f"the {mode} layers are dealt to groups in another way beside the {other} ones than alone"
    return f"the {mode} layers have {field} {found.obtained} beside the {other} ones, alone {found.expected}"


def _has_counterpart(evidence: Evidence) -> bool:
    if evidence.counterpart is None:
        return False
    return evidence.contract == "native" or not evidence.mixed or evidence.counterpart_parts is not None


@law("G7", applies=_has_counterpart)
def one_mode_is_untouched(evidence: Evidence) -> Iterator[Breach]:
    """The patched planner answers as the unpatched one where the contract changes nothing.

    Under `isolate` that is every case of one mode, byte for byte; under `native` every case.
    """
    assert evidence.counterpart is not None
    pairs: list[tuple[str, Outcome, Outcome]] = []
    if evidence.contract == "native" or not evidence.mixed:
        pairs.append(("", evidence.counterpart, evidence.outcome))
    elif evidence.parts is not None and evidence.counterpart_parts is not None:
        pairs.append(("sharded part: ", evidence.counterpart_parts.sharded, evidence.parts.sharded))
        pairs.append(("replicated part: ", evidence.counterpart_parts.replicated, evidence.parts.replicated))
    for words, expected, obtained in pairs:
        if not isinstance(expected, Planned | Refused) or not isinstance(obtained, Planned | Refused):
            continue
        found = outcome_difference(expected, obtained)
        if found is not None:
            yield Breach(
                law="G7", path=found.path, error=found.error, frame=found.frame,
                detail=f"{words}{found.path} is {found.obtained}; from the unpatched planner it is {found.expected}",
            )  # fmt: skip
            return


def _some(names: Iterator[str] | set[str] | tuple[str, ...]) -> str:
    ordered = sorted(names) if isinstance(names, set) else list(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more" if len(ordered) > 3 else "")


def _is(names: set[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _short(message: str) -> str:
    first = message.strip().splitlines()[0] if message.strip() else "no message"
    return first if len(first) <= 160 else f"{first[:157]}…"


__all__ = ["Plan", "every_layer_once", "one_mode_is_untouched", "one_mode_per_group", "parts_are_planned_apart"]
