"""Draws the layers of the target model: a few specs, and the pattern in which layers use them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from fuzz.strategies.pages import Relation, relate
from fuzz.strategies.scene import Scene, draw_kind
from fuzz.strategies.source import Source, pick
from fuzz.strategies.specs import (
    ATTENTION_QUIRKS,
    CHUNKS,
    WINDOWS,
    draw_mamba,
    draw_spec,
    with_sound_stride,
)
from oracles.case import (
    SPEC_CLASSES,
    AttentionSpec,
    ChunkedLocalSpec,
    FullSpec,
    HiddenStateSpec,
    MambaSpec,
    RSwaSpec,
    SinkSpec,
    SlidingWindowSpec,
    Spec,
    is_latent,
    kind_of,
    mode_of,
)
from oracles.geometry import DTYPE_BYTES, page_bytes

GEOMETRY = (
    "block_size", "num_kv_heads", "head_size", "head_size_v", "dtype", "kv_quant_mode", "num_head_slots",
    "state_content_bytes", "tokens_per_state",
)  # fmt: skip
"""The fields that decide the content of a page."""

FURTHER = (0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6)
"""Specs beside the first. One draw for few and many, so that many shrink to few."""

MAX_ENTRY = 1 << 16
"""Elements of one head's entry, four times the widest model's hidden state."""

SAME_PAGE: tuple[Relation, ...] = ("free", "equal")


class Stack(Struct, frozen=True):
    """Layers in order: each number points into ``specs``."""

    specs: tuple[Spec, ...]
    order: tuple[int, ...]


def draw_stack(source: Source, scene: Scene) -> Stack:
    """Specs related by their pages, in counts and an order that mean something to the planner."""
    first = draw_kind(source, first_kinds(scene))
    specs = [draw_spec(source, scene, first, replicated=must_replicate(scene, source, first))]
    # Simplest is one spec, so that a case whose fault needs one shrinks to one.
    for _ in range(min(source.choice(FURTHER), scene.shape.max_layers - 1)):
        specs.append(draw_another(source, scene, specs))
    if scene.mixed and not scene.lookahead and not any(mode_of(spec) == "replicated" for spec in specs):
        # In place of the last where there is no room; the first stays, for it is what stands beside.
        specs = [*specs[: max(1, scene.shape.max_layers - 1)], draw_replicated(source, scene)]
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


def draw_replicated(source: Source, scene: Scene) -> Spec:
    """A replicated spec: a mixed case without a draft has one in its target."""
    vocabulary = scene.shape.vocabulary
    fit = tuple(kind for kind in scene.kinds if vocabulary.replicable(kind))
    kinds = fit or tuple(kind for kind in vocabulary.fields if kind != "encoder_only" and vocabulary.replicable(kind))
    return draw_spec(source, scene, draw_kind(source, kinds), replicated=True)


def draw_another(source: Source, scene: Scene, specs: Sequence[Spec]) -> Spec:
    """One more spec, its page in a drawn relation to an earlier one."""
    base = specs[0] if len(specs) == 1 else source.choice(specs)
    if source.chance(28):
        return sibling(source, scene, base)
    kind = draw_kind(source, scene.kinds)
    if source.chance(30) and isinstance(base, AttentionSpec):
        # Same geometry in another kind, or the same kind with one field changed: what merges must tell apart.
        return relate(source, twin(source, scene, kind, base), page_bytes(base), source.choice(scene.relations))
    other = draw_spec(source, scene, kind, replicated=scene.replicates(source, kind))
    if isinstance(other, HiddenStateSpec) and source.chance(50):
        return with_entry_beside(source, other, page_bytes(base))
    return relate(source, other, page_bytes(base), source.choice(scene.relations))


def with_entry_beside(source: Source, spec: HiddenStateSpec, page: int) -> Spec:
    """``spec`` with an entry, one token's states, beside ``page`` bytes: an entry that is larger has every page grow,
    a smaller one decides how many tokens a page holds.
    """
    over, under = source.choice(((1, 1), (1, 2), (1, 3), (3, 2), (2, 1), (2, 7)))
    width = spec.num_kv_heads * DTYPE_BYTES[spec.dtype]
    size = page * over // (under * width) + source.choice((0, 1))
    return structs.replace(spec, head_size=min(max(1, size), MAX_ENTRY), page_size_padded=None)


def sibling(source: Source, scene: Scene, base: Spec) -> Spec:
    """``base`` with one field changed: what may still share its group, or must not for that one field."""
    kind, vocabulary = kind_of(base), scene.shape.vocabulary
    if isinstance(base, MambaSpec):
        whole = vocabulary.knows(kind, "tp_replicated") and not base.tp_replicated
        return structs.replace(base, tp_replicated=True) if whole else draw_mamba(source, scene)
    change = source.choice(("heads", "heads", "window", "window", "causality", "tp_shards", "mode", "quirk", "quirk"))
    if change == "window":
        return with_another_window(source, base)
    if change == "quirk":
        return with_a_quirk(source, scene, base)
    if change == "causality" and isinstance(base, FullSpec) and vocabulary.knows(kind, "non_causal"):
        return structs.replace(base, non_causal=not base.non_causal)
    if change == "tp_shards" and vocabulary.knows(kind, "max_tp_shards"):
        return structs.replace(base, max_tp_shards=source.choice((4, 1)))
    if change == "mode" and scene.policy == "some" and scene.may_shard(kind) and vocabulary.replicable(kind):
        return structs.replace(base, replicated=not base.replicated)
    heads = base.num_kv_heads * source.choice((2, 3))
    slots = None if base.num_head_slots is None else heads
    return structs.replace(base, num_kv_heads=heads, num_head_slots=slots, page_size_padded=None)


def with_another_window(source: Source, base: Spec) -> Spec:
    """``base`` with another window, chunk or sink: its pages stay, what it keeps or records does not."""
    window, chunk, sink = source.choice(WINDOWS), source.choice(CHUNKS), source.choice((4, None, 128))
    recorded = source.choice((1024, 128, None))
    if isinstance(base, SlidingWindowSpec):
        return structs.replace(base, sliding_window=window)
    if isinstance(base, ChunkedLocalSpec):
        return structs.replace(base, attention_chunk_size=chunk)
    if isinstance(base, RSwaSpec):
        return structs.replace(base, rswa_window=window)
    if isinstance(base, SinkSpec):
        return structs.replace(base, sink_len=sink)
    if isinstance(base, FullSpec) and base.attention_chunk_size is None:
        return structs.replace(base, sliding_window=recorded)
    return base


def with_a_quirk(source: Source, scene: Scene, base: Spec) -> Spec:
    """``base`` with one quirk more, or with another value of one that it has, on its own page or on as large a one."""
    kind, relation = kind_of(base), source.choice(SAME_PAGE)
    quirk = pick(source, tuple(ATTENTION_QUIRKS), scene.quirks)
    fields = {name: getattr(base, name) for name in base.__struct_fields__}
    fields["page_size_padded"] = None
    if quirk in ATTENTION_QUIRKS:
        ATTENTION_QUIRKS[quirk](source, scene, kind, fields)
    changed = with_sound_stride(SPEC_CLASSES[kind](**fields))  # type: ignore[arg-type]
    return relate(source, changed, page_bytes(base), relation)


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
    arrange = source.choice((_runs, _pattern, _ratio, _pattern, _ratio, _ratio, _shuffled))
    order = arrange(source, specs, max(limit, specs))
    return order[:limit] if len(set(order[:limit])) == specs else list(range(specs))


def draw_count(source: Source, limit: int) -> int:
    """How many layers alike: few, or as many as models have."""
    high = source.choice((4, 12, 4, limit))
    return source.integer(1, max(1, min(high, limit)))


def _runs(source: Source, specs: int, limit: int) -> list[int]:
    """All layers of one spec, then all of the next."""
    room = max(1, limit // specs)
    return [at for at in range(specs) for _ in range(draw_count(source, room))]


def _pattern(source: Source, specs: int, limit: int) -> list[int]:
    """A short pattern, repeated, sometimes with a tail: 5:1, 3:1, 1:1 and the like."""
    lengths = [source.choice((1, 1, 3, 5, 2)) if at == 0 else source.choice((1, 1, 2)) for at in range(specs)]
    if source.chance(35):
        lengths = [1] * specs  # as many layers of each: only such a pattern is split by its repeats
    unit = [at for at in range(specs) for _ in range(lengths[at])]
    repeats = draw_count(source, max(1, limit // len(unit)))
    tail = source.integer(0, len(unit) - 1) if source.chance(45) else 0
    return unit * repeats + unit[:tail]


def _ratio(source: Source, specs: int, limit: int) -> list[int]:
    """Counts at and beside the ratios where the width rule turns: 1.5, and 1.25 of older releases."""
    over, under = source.choice(((3, 2), (3, 2), (5, 4), (2, 1)))
    small = source.integer(1, max(1, limit // (2 * specs)))
    # Where the ratio is a whole number of layers it can be met exactly.
    small = max(1, small // under) * under if source.chance(50) else small
    large = small * over // under
    # On both sides of the ratio, for a tie between two lengths takes several counts on each.
    counts = [small] + [max(1, source.choice((large, small, large, large - 1, large + 1))) for _ in range(specs - 1)]
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
