"""Laws of facts: what a group says of its layers is what the layers say of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from oracles.case import (
    ChunkedLocalSpec,
    FullSpec,
    HiddenStateSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
    kind_of,
)
from oracles.geometry import content_bytes, page_bytes, token_slots
from oracles.law import Breach, Evidence, has_groups, law
from oracles.laws.reading import group_specs, own_specs

WHOLE_SEQUENCE = ("whole sequence",)


@law("G3", applies=has_groups)
def members_need_the_same_slots(evidence: Evidence) -> Iterator[Breach]:
    """The layers of a group keep the same tokens: same kind, window, chunk and state blocks.

    One block table frees its blocks for all layers of the group at once. A table for the whole sequence serves
    every layer; it wastes memory for local ones but loses nothing.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    own = own_specs(evidence.case)
    for group in plan.groups:
        specs = group_specs(plan, group)
        kept = {token_slots(spec) for _, spec in specs}
        if len(kept) > 1:
            words = " and ".join(sorted(_slot_words(one) for one in kept))
            yield Breach(law="G3", path="groups[].slots", detail=f"one group keeps {words} ({_names(group.layers)})")
            return
        for name, spec in specs:
            needed = token_slots(own[name]) if name in own else token_slots(spec)
            if token_slots(spec) not in (WHOLE_SEQUENCE, needed):
                yield Breach(
                    law="G3", path="groups[].slots",
                    detail=f"{name} needs {_slot_words(needed)}, its group keeps {_slot_words(token_slots(spec))}",
                )  # fmt: skip
                return


EXEMPT = {
    "block_size": "may be scaled; checked by itself",
    "page_size_padded": "may be raised; the page is checked instead",
    "alignment": "spent once it has become a padding",
    "extra_retained_tokens": "set by the planner from the speculative settings",
}
"""Fields that need not come through as they were, and why."""

EXEMPT_LATENT = {"non_causal": "read by the engine from the layers before grouping, never from a latent group"}
ANY_OF_GROUP = ("non_causal", "non_causal_multi_token_decode")
"""Marks that a group carries when any of its layers does."""

ONE_OF_GROUP = ("sliding_window", "attention_chunk_size")
"""Records of full layers that a group takes from those of its layers that have them."""


@law("G4", applies=has_groups)
def nothing_is_lost(evidence: Evidence) -> Iterator[Breach]:
    """Every fact of a layer survives merging and conversion; only a block may be scaled and a page raised.

    Backends build their kernels from the group's spec: a lost quantisation mode, sink or window is computed wrongly
    or not at all.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    own = own_specs(evidence.case)
    found: dict[str, str] = {}
    checked: set[tuple[int, int]] = set()
    for group in plan.groups:
        for name, spec in group_specs(plan, group):
            if name not in own or (id(own[name]), id(spec)) in checked:
                continue
            checked.add((id(own[name]), id(spec)))
            for field, was, now in _lost(own[name], spec):
                found.setdefault(f"{_family(own[name])}.{field}", f"{field} of {name} is {was}, in its group {now}")
    for path, words in found.items():
        yield Breach(law="G4", path=f"groups[].spec.{path}", detail=words)


def _family(spec: LayerSpec) -> str:
    # The kind is part of the path: each kind merges by a function of its own, so each loss is a fault of its own.
    return kind_of(spec)


def _lost(own: Spec, planned: Spec) -> Iterator[tuple[str, object, object]]:
    """(field, the layer's value, the group's value) for each fact that did not come through."""
    converted = type(own) is not type(planned)
    if converted and type(planned) is not _full_kind(own):
        yield "kind", kind_of(own), kind_of(planned)
        return
    for name in own.__struct_fields__:
        if name in EXEMPT or (name in EXEMPT_LATENT and isinstance(own, MlaSpec)):
            continue
        if not hasattr(planned, name):
            continue  # a conversion to full keeps every block: what only governs freeing has no meaning there
        was, now = getattr(own, name), getattr(planned, name)
        if was == now or (name in ANY_OF_GROUP and now) or (name in ONE_OF_GROUP and was is None):
            continue
        yield name, was, now
    if not isinstance(own, HiddenStateSpec) and not converted:
        if planned.block_size % own.block_size:
            yield "block_size", own.block_size, planned.block_size
        if page_bytes(planned) < page_bytes(own):
            yield "page_size_padded", page_bytes(own), page_bytes(planned)


def _full_kind(spec: Spec) -> type[Spec] | None:
    """What a local layer may be converted to."""
    if isinstance(spec, SlidingWindowMlaSpec):
        return MlaSpec
    return FullSpec if isinstance(spec, SlidingWindowSpec | ChunkedLocalSpec) else None


@law("G5", applies=has_groups)
def pages_hold_their_blocks(evidence: Evidence) -> Iterator[Breach]:
    """A page is what its block needs or a stated padding above it, and recurrent state keeps its block.

    A state belongs to a position, not to a number of tokens: scaling its block moves where states are kept.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    own = own_specs(evidence.case)
    pages = [_stated_page(spec) for spec in plan.specs]
    for group in plan.groups:
        specs = group_specs(plan, group)
        for name, spec in {id(spec): (name, spec) for name, spec in reversed(specs)}.values():
            before = own.get(name)
            if page_bytes(spec) < content_bytes(spec):
                words = f"the page of {name} has {page_bytes(spec)} bytes for {content_bytes(spec)}"
                yield Breach(law="G5", path="groups[].spec.page", detail=words)
                return
            if spec.block_size != group.block_size:
                words = f"{name} has blocks of {spec.block_size} tokens, its group of {group.block_size}"
                yield Breach(law="G5", path="groups[].block_size", detail=words)
                return
            if isinstance(spec, MambaSpec) and before is not None and spec.block_size != before.block_size:
                words = f"the state of {name} had blocks of {before.block_size} tokens, now {spec.block_size}"
                yield Breach(law="G5", path="groups[].mamba.block_size", detail=words)
                return
        total = pages[group.spec] if group.spec is not None else sum(pages[at] for at in group.members)
        if group.page_bytes != total:
            words = f"the group of {_names(group.layers)} claims a page of {group.page_bytes} bytes, not {total}"
            yield Breach(law="G5", path="groups[].page_bytes", detail=words)
            return


def _stated_page(spec: Spec) -> int:
    """The page that a planned spec states; only a layer's own spec may leave it to an alignment."""
    padded: int | None = getattr(spec, "page_size_padded", None)
    return page_bytes(spec) if padded is None else padded


DROPPING = frozenset({"eagle", "eagle3", "mtp"})
"""Methods whose drafts make the last block of a prefix doubtful, in every version."""


def _marks_drafts(evidence: Evidence) -> bool:
    plan, asked = evidence.plan, evidence.case.settings.speculative
    if plan is None or plan.groups is None or asked is None or asked.method not in DROPPING:
        return False
    return any(group.draft for group in plan.groups)


@law("G12", applies=_marks_drafts)
def draft_marks_sit_on_drafts(evidence: Evidence) -> Iterator[Breach]:
    """When draft groups are marked at all, the marks sit on exactly the groups with draft layers, on every worker.

    A draft group without its mark serves a last block that its draft has not finished. No mark anywhere is read by
    the scheduler as a mark on every group, which is safe.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    drafts = {layer.name for layer in evidence.case.layers if layer.draft}
    for group in plan.groups:
        holds = not drafts.isdisjoint(group.layers)
        declared = any(
            isinstance(spec, MlaSpec) and spec.non_causal_multi_token_decode for _, spec in group_specs(plan, group)
        )
        if holds and not group.draft:
            words = f"the group of {_names(group.layers)} holds draft layers and is not marked, others are"
            yield Breach(law="G12", path="groups[].draft.missing", detail=words)
            return
        if group.draft and not holds and not declared:
            words = f"the group of {_names(group.layers)} is marked as a draft's and holds none of its layers"
            yield Breach(law="G12", path="groups[].draft.foreign", detail=words)
            return
    marks = tuple(group.draft for group in plan.groups)
    for placement in plan.placement or ():
        if placement.group_drafts and placement.group_drafts != marks:
            words = "a worker's groups have lost draft marks that the model's groups have"
            yield Breach(law="G12", path="placement[].group_drafts", detail=words)
            return


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _slot_words(slots: tuple[object, ...]) -> str:
    return " ".join(str(part) for part in slots)
