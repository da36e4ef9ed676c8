"""Mutators: a case that is one small step away from another, still valid.

A campaign mutates what reached something new. Every mutator keeps ``check_case`` satisfied and the layout's
origin true; the result may leave what the generator would draw (a window split over DCP ranks is repaired, a
kind that a planner lacks is not), so a campaign should mutate cases of its own vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import structs

from fuzz.strategies.layouts import resolvable_layouts
from fuzz.strategies.memory import MAX_MEMORY, smallest_memory
from fuzz.strategies.pages import MAX_BLOCK, RELATIONS, relate
from fuzz.strategies.scene import WINDOWED
from fuzz.strategies.source import RandomSource, Source
from fuzz.strategies.specs import with_sound_stride
from oracles.case import (
    AttentionSpec,
    Case,
    CaseError,
    Layer,
    MambaSpec,
    Settings,
    Spec,
    Worker,
    build_case,
    check_case,
    kind_of,
)
from oracles.geometry import content_bytes, page_bytes

MAX_MUTANT_LAYERS = 256
"""Duplicating and splicing stop here; four times the generator's stacks are enough to see linear growth."""

ATTEMPTS = 8
"""A mutator may not apply (no layer to drop, no mode to toggle); another is tried."""

Pairs = list[tuple[Layer, Spec]]
Mutator = Callable[[Source, Case, Case], Case | None]


def mutate(generator: random.Random, case: Case, other: Case | None = None) -> Case:
    """A valid case one step from ``case``; ``other`` is what splicing takes from (default: ``case`` itself).

    The same generator state gives the same mutant. ``case`` comes back unchanged when no mutator applies.
    """
    source = RandomSource(generator)
    for _ in range(ATTEMPTS):
        made = source.choice(MUTATORS)(source, case, other or case)
        if made is None:
            continue
        made = _repaired(made)
        if made != case and _is_valid(made):
            return made
    return case


def drop(source: Source, case: Case, _other: Case) -> Case | None:
    """Without a run of layers."""
    if len(case.layers) < 2:
        return None
    first = source.integer(0, len(case.layers) - 1)
    count = source.choice((1, 1, 2, len(case.layers) // 2))
    kept = [pair for at, pair in enumerate(_pairs(case)) if not first <= at < first + count]
    return _rebuilt(kept, case.settings) if kept else None


def duplicate(source: Source, case: Case, _other: Case) -> Case | None:
    """With a run of layers repeated after itself."""
    if not case.layers or len(case.layers) >= MAX_MUTANT_LAYERS:
        return None
    pairs = _pairs(case)
    first = source.integer(0, len(pairs) - 1)
    count = source.choice((1, 1, 2, len(pairs) // 2))
    run = pairs[first : first + count]
    return _rebuilt(pairs[: first + count] + run + pairs[first + count :], case.settings)


def swap(source: Source, case: Case, _other: Case) -> Case | None:
    """With two layers in each other's place."""
    if len(case.layers) < 2:
        return None
    pairs = _pairs(case)
    one, two = source.integer(0, len(pairs) - 1), source.integer(0, len(pairs) - 1)
    pairs[one], pairs[two] = pairs[two], pairs[one]
    return _rebuilt(pairs, case.settings)


def toggle_mode(source: Source, case: Case, _other: Case) -> Case | None:
    """With one spec's replication turned over."""
    fit = [at for at, spec in enumerate(case.specs) if isinstance(spec, AttentionSpec)]
    if not fit:
        return None
    at = source.choice(fit)
    spec = case.specs[at]
    assert isinstance(spec, AttentionSpec)
    return _with_spec(case, at, structs.replace(spec, replicated=not spec.replicated))


def toggle_draft(source: Source, case: Case, _other: Case) -> Case | None:
    """With one spec's layers given to the draft, or back to the target."""
    if not case.layers:
        return None
    at = source.integer(0, len(case.specs) - 1)
    layers = [structs.replace(y, draft=not y.draft) if y.spec == at else y for y in case.layers]
    return _rebuilt([(layer, case.specs[layer.spec]) for layer in layers], case.settings)


def scale_block(source: Source, case: Case, _other: Case) -> Case | None:
    """With one spec's block doubled, halved or tripled."""
    if not case.specs:
        return None
    at = source.integer(0, len(case.specs) - 1)
    over, under = source.choice(((2, 1), (1, 2), (3, 1)))
    spec = case.specs[at]
    block = min(max(1, spec.block_size * over // under), MAX_BLOCK)
    return _with_spec(case, at, structs.replace(spec, block_size=block))


def relate_pages(source: Source, case: Case, _other: Case) -> Case | None:
    """With one spec's page brought into a drawn relation to another's."""
    if len(case.specs) < 2:
        return None
    at, base = source.integer(0, len(case.specs) - 1), source.integer(0, len(case.specs) - 1)
    if at == base:
        return None
    spec = relate(source, case.specs[at], page_bytes(case.specs[base]), source.choice(RELATIONS))
    return _with_spec(case, at, spec)


def nudge(source: Source, case: Case, _other: Case) -> Case | None:
    """With one number moved by one, or across a boundary: a block, heads, a window, the model length, DCP."""
    settings = case.settings
    choice = source.choice(("block", "heads", "window", "model_len", "dcp", "batched", "flags"))
    if choice == "model_len":
        block = settings.block_size * settings.dcp
        to = source.choice((settings.model_len + 1, settings.model_len - 1, block, block + 1))
        return _with_settings(case, structs.replace(settings, model_len=min(max(1, to), 2**24)))
    if choice == "dcp":
        dcp = source.choice((1, 2, 4, 8, 16, 3))
        return _with_settings(case, structs.replace(settings, dcp=dcp, tp=max(dcp, settings.tp)))
    if choice == "batched":
        return _with_settings(case, structs.replace(settings, batched_tokens=source.choice((1, 512, 2048, 8192))))
    if choice == "flags":
        field = source.choice(("prefix_caching", "hybrid_manager", "auto_fit"))
        return _with_settings(case, structs.replace(settings, **{field: not getattr(settings, field)}))
    field = {"block": "block_size", "heads": "num_kv_heads", "window": "sliding_window"}[choice]
    fit = [at for at, spec in enumerate(case.specs) if isinstance(getattr(spec, field, None), int)]
    if not fit:
        return None
    at = source.choice(fit)
    value: int = getattr(case.specs[at], field)
    to = max(1, value + source.choice((1, -1)))
    return _with_spec(case, at, structs.replace(case.specs[at], **{field: to}))


def nudge_memory(source: Source, case: Case, _other: Case) -> Case | None:
    """With memory at the smallest pool, or a block or a byte beside it."""
    needed = smallest_memory(case)
    off = source.choice((0, 0, -1, 1, -(2**12), 2**20))
    factor = source.choice((1, 1, 2, 10))
    workers = tuple(
        Worker(memory=min(max(0, bytes_ * factor + off), MAX_MEMORY), stage=worker.stage)
        for bytes_, worker in zip(needed, case.settings.workers, strict=True)
    )
    return _with_settings(case, structs.replace(case.settings, workers=workers))


def change_layout(source: Source, case: Case, _other: Case) -> Case | None:
    """With another layout that the guard accepts."""
    return _with_settings(case, structs.replace(
        case.settings, layout=source.choice(resolvable_layouts(case.specs)), layout_origin="resolved"))  # fmt: skip


def splice(source: Source, case: Case, other: Case) -> Case | None:
    """The first layers of ``case`` before the last layers of ``other``, under the settings of ``case``."""
    if not case.layers or not other.layers:
        return None
    served = {worker.stage for worker in case.settings.workers}
    head = _pairs(case)[: source.integer(1, len(case.layers))]
    tail = _pairs(other)[source.integer(0, len(other.layers) - 1) :]
    tail = [(y if y.stage in served else structs.replace(y, stage=max(served)), spec) for y, spec in tail]
    return _rebuilt((head + tail)[:MAX_MUTANT_LAYERS], case.settings)


MUTATORS: Sequence[Mutator] = (
    drop, duplicate, swap, toggle_mode, toggle_draft, scale_block, relate_pages, relate_pages, nudge, nudge,
    nudge_memory, change_layout, splice, splice,
)  # fmt: skip


def _pairs(case: Case) -> Pairs:
    return [(layer, case.specs[layer.spec]) for layer in case.layers]


def _rebuilt(pairs: Pairs, settings: Settings) -> Case:
    """A case of these layers; a name that stands twice gets a new number."""
    taken: set[str] = set()
    named: Pairs = []
    for layer, spec in pairs:
        name, number = layer.name, 0
        while name in taken:
            stem = layer.name.rpartition(".")[0] or layer.name
            name, number = f"{stem}.{len(taken) + number}", number + 1
        taken.add(name)
        named.append((layer if name == layer.name else structs.replace(layer, name=name), spec))
    return build_case(named, settings)


def _with_spec(case: Case, at: int, spec: Spec) -> Case:
    return _rebuilt(
        [(layer, spec if layer.spec == at else case.specs[layer.spec]) for layer in case.layers], case.settings
    )


def _with_settings(case: Case, settings: Settings) -> Case:
    return structs.replace(case, settings=settings)


def _repaired(case: Case) -> Case:
    """Restores what one step may break: paddings below their content, strides without a state, windows split by
    DCP, state blocks below the model length or in another cache mode, and a layout that the guard would refuse.
    """
    settings = case.settings
    specs = [_repaired_spec(spec, settings) for spec in case.specs]
    if specs != list(case.specs):
        case = _rebuilt([(layer, specs[layer.spec]) for layer in case.layers], settings)
    resolved = settings.layout in resolvable_layouts(case.specs)
    origin = "resolved" if resolved else "forced"
    if settings.layout_origin != origin:
        case = structs.replace(case, settings=structs.replace(settings, layout_origin=origin))
    return case


def _repaired_spec(spec: Spec, settings: Settings) -> Spec:
    if spec.page_size_padded is not None and spec.page_size_padded < content_bytes(spec):
        spec = structs.replace(spec, page_size_padded=None)
    if isinstance(spec, MambaSpec):
        whole = settings.model_len if settings.mamba_mode == "none" else 1
        return structs.replace(
            spec, mamba_cache_mode=settings.mamba_mode, block_size=max(spec.block_size, whole)
        )  # fmt: skip
    spec = with_sound_stride(spec)
    assert isinstance(spec, AttentionSpec)
    if settings.dcp > 1 and kind_of(spec) in WINDOWED and not spec.replicated:
        spec = structs.replace(spec, replicated=True)
    return spec


def _is_valid(case: Case) -> bool:
    try:
        check_case(case)
    except CaseError:
        return False
    return True
