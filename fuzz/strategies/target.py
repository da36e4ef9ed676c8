"""Draws the layers of the target model: a few specs, and the pattern in which layers use them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from fuzz.strategies.pages import RELATIONS, relate
from fuzz.strategies.scene import Scene, draw_kind
from fuzz.strategies.source import Source
from fuzz.strategies.specs import draw_mamba, draw_spec, with_sound_stride
from oracles.case import AttentionSpec, FullSpec, MambaSpec, Spec, is_latent, kind_of
from oracles.geometry import page_bytes

GEOMETRY = (
    "block_size", "num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "num_head_slots",
    "state_content_bytes", "tokens_per_state",
)  # fmt: skip
"""The fields that decide the content of a page."""


class Stack(Struct, frozen=True):
    """Layers in order: each number points into ``specs``."""

    specs: tuple[Spec, ...]
    order: tuple[int, ...]


def draw_stack(source: Source, scene: Scene) -> Stack:
    """Specs related by their pages, in counts and an order that mean something to the planner."""
    first = draw_kind(source, first_kinds(scene))
    specs = [draw_spec(source, scene, first, replicated=must_replicate(scene, source, first))]
    # Simplest is one spec, so that a case whose fault needs one shrinks to one.
    for _ in range(source.choice((0, 1, 1, 1, 2, 2, 3)) if scene.shape.max_layers > 1 else 0):
        specs.append(draw_another(source, scene, specs))
    distinct = list(dict.fromkeys(specs))
    return Stack(tuple(distinct), tuple(draw_order(source, len(distinct), scene.shape.max_layers)))


def first_kinds(scene: Scene) -> tuple[str, ...]:
    """Kinds for the first spec; a mixed case starts with one that stays sharded or recurrent."""
    if not scene.mixed:
        return scene.kinds
    fit = tuple(kind for kind in scene.kinds if scene.may_shard(kind))
    return fit or tuple(kind for kind in scene.shape.vocabulary.fields if kind in ("full", "mamba"))


def must_replicate(scene: Scene, source: Source, kind: str) -> bool:
    """The first spec's mode: fixed in a mixed case, for it is what the replicated layers stand beside."""
    return not scene.mixed and scene.replicates(source, kind)


def draw_another(source: Source, scene: Scene, specs: Sequence[Spec]) -> Spec:
    """One more spec, its page in a drawn relation to an earlier one."""
    base = specs[0] if len(specs) == 1 else source.choice(specs)
    if source.chance(20):
        return sibling(source, scene, base)
    kind = draw_kind(source, scene.kinds)
    if source.chance(25) and isinstance(base, AttentionSpec):
        # Same geometry in another kind, or the same kind with one field changed: what merges must tell apart.
        return relate(source, twin(source, scene, kind, base), page_bytes(base), source.choice(RELATIONS))
    other = draw_spec(source, scene, kind, replicated=scene.replicates(source, kind))
    return relate(source, other, page_bytes(base), source.choice(RELATIONS))


def sibling(source: Source, scene: Scene, base: Spec) -> Spec:
    """``base`` with one field changed: what may still share its group, or must not for that one field."""
    kind, vocabulary = kind_of(base), scene.shape.vocabulary
    if isinstance(base, MambaSpec):
        whole = vocabulary.knows(kind, "tp_replicated") and not base.tp_replicated
        return structs.replace(base, tp_replicated=True) if whole else draw_mamba(source, scene)
    change = source.choice(("heads", "heads", "window", "causality", "tp_shards", "mode"))
    if change == "window" and isinstance(base, FullSpec) and base.attention_chunk_size is None:
        return structs.replace(base, sliding_window=source.choice((1024, 128, None)))
    if change == "causality" and isinstance(base, FullSpec) and vocabulary.knows(kind, "non_causal"):
        return structs.replace(base, non_causal=not base.non_causal)
    if change == "tp_shards" and vocabulary.knows(kind, "max_tp_shards"):
        return structs.replace(base, max_tp_shards=source.choice((4, 1)))
    if change == "mode" and scene.policy == "some" and scene.may_shard(kind) and vocabulary.replicable(kind):
        return structs.replace(base, replicated=not base.replicated)
    heads = base.num_kv_heads * source.choice((2, 3))
    slots = None if base.num_head_slots is None else heads
    return structs.replace(base, num_kv_heads=heads, num_head_slots=slots, page_size_padded=None)


def twin(source: Source, scene: Scene, kind: str, base: AttentionSpec) -> Spec:
    """A spec of ``kind`` with the geometry of ``base`` where the kind allows it."""
    drawn = draw_spec(source, scene, kind, replicated=scene.replicates(source, kind))
    if not isinstance(drawn, AttentionSpec) or isinstance(drawn.head_size_v, int) != isinstance(base.head_size_v, int):
        return drawn
    known = scene.shape.vocabulary.fields[kind]
    copied = {name: getattr(base, name) for name in GEOMETRY if name in known}
    if is_latent(drawn):
        copied.pop("head_size_v", None)  # no value half, whatever the other has
    return with_sound_stride(structs.replace(drawn, **copied, page_size_padded=None))


def draw_order(source: Source, specs: int, limit: int) -> list[int]:
    """An order of layers over ``specs`` specs, at most ``limit`` layers long, every spec used."""
    if specs == 1:
        return [0] * draw_count(source, limit)
    arrange = source.choice((_runs, _pattern, _pattern, _ratio, _shuffled))
    order = arrange(source, specs, max(limit, specs))
    return order[:limit] if len(set(order[:limit])) == specs else list(range(specs))


def draw_count(source: Source, limit: int) -> int:
    """How many layers alike: few, or as many as models have."""
    high = source.choice((4, limit, 12, limit))
    return source.integer(1, max(1, min(high, limit)))


def _runs(source: Source, specs: int, limit: int) -> list[int]:
    """All layers of one spec, then all of the next."""
    room = max(1, limit // specs)
    return [at for at in range(specs) for _ in range(draw_count(source, room))]


def _pattern(source: Source, specs: int, limit: int) -> list[int]:
    """A short pattern, repeated, sometimes with a tail: 5:1, 3:1, 1:1 and the like."""
    lengths = [source.choice((1, 1, 3, 5, 2)) if at == 0 else source.choice((1, 1, 2)) for at in range(specs)]
    unit = [at for at in range(specs) for _ in range(lengths[at])]
    repeats = draw_count(source, max(1, limit // len(unit)))
    tail = source.integer(0, len(unit) - 1) if source.chance(30) else 0
    return unit * repeats + unit[:tail]


def _ratio(source: Source, specs: int, limit: int) -> list[int]:
    """Counts at and beside the ratios where the width rule turns: 1.5, and 1.25 of older releases."""
    small = source.integer(1, max(1, limit // (2 * specs)))
    over, under = source.choice(((3, 2), (3, 2), (5, 4), (2, 1)))
    large = small * over // under
    counts = [small] + [max(1, large + source.integer(0, 2) - 1) for _ in range(specs - 1)]
    if source.chance(50):
        counts.reverse()
    return [at for at in range(specs) for _ in range(counts[at])]


def _shuffled(source: Source, specs: int, limit: int) -> list[int]:
    """Runs, dealt into an irregular order by a stride that visits every place once."""
    order = _runs(source, specs, limit)
    count = len(order)
    stride = source.choice([step for step in (1, 3, 5, 7, 11, 13) if count % step or step == 1])
    start = source.integer(0, count - 1)
    return [order[(start + at * stride) % count] for at in range(count)]
