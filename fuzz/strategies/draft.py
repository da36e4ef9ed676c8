"""Draws the draft model of speculative decoding: kinds, counts, mode, and how its page stands to the target's."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from fuzz.strategies.pages import relate
from fuzz.strategies.scene import Scene, draw_kind
from fuzz.strategies.source import Source
from fuzz.strategies.specs import draw_spec
from fuzz.strategies.target import Stack
from oracles.case import AttentionSpec, FullSpec, HiddenStateSpec, MlaSpec, Spec, Speculative, kind_of
from oracles.geometry import page_bytes

Method = Literal["eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model", "ngram", "extract_hidden_states"]
Position = Literal["last", "first", "interleaved"]

DRAFT_COUNTS = (1, 1, 2, 3, 5, 8)
MAX_ALIKE = 4
"""Layers of a draft that is given as many as the target's first spec has; two such drafts stay within eight."""

DRAFTABLE = ("full", "sliding_window", "mla", "sliding_window_mla", "chunked_local", "mamba", "rswa", "sink", "cross")
"""Kinds that a draft may use. A ring buffer belongs to a compressed target and hidden states to an extraction."""


class Draft(Struct, frozen=True):
    """A draft's specs with their layer counts, where its layers stand, and the method that uses it."""

    specs: tuple[tuple[Spec, int], ...]
    position: Position
    speculative: Speculative | None


NO_DRAFT = Draft((), "last", None)


def draw_draft(source: Source, scene: Scene, stack: Stack) -> Draft:
    """The draft of this scene; in a mixed case its first spec is replicated."""
    if not scene.lookahead:
        return NO_DRAFT
    if not scene.mixed and source.chance(25):
        return _without_layers(source, scene, stack)
    kinds = draft_kinds(scene)
    if not kinds:
        return _without_layers(source, scene, stack)
    specs = []
    alike = min(max(1, stack.order.count(0)), MAX_ALIKE)
    for at in range(source.choice((1, 1, 1, 2))):
        spec = draw_draft_spec(source, scene, stack, kinds, must_replicate=scene.mixed and at == 0)
        specs.append((spec, source.choice((*DRAFT_COUNTS, alike))))
    position: Position = source.choice(("last", "last", "last", "first", "interleaved"))
    method = source.choice(methods_for(specs[0][0], position))
    # Drawn for every method: a method that saved a draw would be the simpler one.
    modules = source.choice((1, min(scene.lookahead, 2), min(scene.lookahead, 3)))
    speculative = Speculative(method=method, tokens=scene.lookahead, modules=modules if method == "mtp" else 1)
    return Draft(tuple(specs), position, speculative)


def draft_kinds(scene: Scene) -> tuple[str, ...]:
    """Kinds in play for the draft's first spec; in a mixed case it is replicated, so only those that can be."""
    vocabulary = scene.shape.vocabulary
    allowed = [
        kind
        for kind in DRAFTABLE
        if kind in vocabulary.fields
        and (vocabulary.replicable(kind) if scene.policy != "none" else scene.may_shard(kind))
    ]
    return tuple(kind for kind in allowed if kind in scene.kinds) or tuple(allowed)


def draw_draft_spec(
    source: Source, scene: Scene, stack: Stack, kinds: tuple[str, ...], *, must_replicate: bool
) -> Spec:
    """One spec of the draft. Often the target's own, for that is what MTP modules are."""
    base = source.choice(stack.specs)
    if source.chance(40) and isinstance(base, AttentionSpec) and kind_of(base) in kinds:
        mode = must_replicate or scene.replicates(source, kind_of(base), draft=True)
        return structs.replace(base, replicated=mode)
    kind = draw_kind(source, kinds)
    mode = must_replicate or scene.replicates(source, kind, draft=True)
    spec = draw_spec(source, scene, kind, replicated=mode)
    return relate(source, spec, page_bytes(base), source.choice(scene.relations))


def methods_for(spec: Spec, position: Position) -> tuple[Method, ...]:
    """Speculative methods whose draft may look like this. MTP modules and DSpark drafts register last."""
    methods: tuple[Method, ...] = ("draft_model", "dflash")
    if isinstance(spec, FullSpec):
        methods = ("eagle", "eagle3", *methods)
    if position == "last":
        methods = ("mtp", "mtp", *methods)
        if isinstance(spec, MlaSpec):
            methods = (*methods, "dspark", "dspark")
    return methods


def _without_layers(source: Source, scene: Scene, stack: Stack) -> Draft:
    """Speculation that adds no cache: n-grams, a hidden-state extraction, or modules that share the target's."""
    method: Method = source.choice(("ngram", "mtp", "eagle"))
    if any(isinstance(spec, HiddenStateSpec) for spec in stack.specs):
        method = "extract_hidden_states"
    return Draft((), "last", Speculative(method=method, tokens=scene.lookahead))
