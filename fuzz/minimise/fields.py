"""Passes over settings and spec fields: defaults first, then plainer kinds, then rounder and smaller numbers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import structs

from fuzz.minimise.layers import drop_classes, drop_layers, is_askable, lower_counts, rows_of, sketches
from fuzz.minimise.order import FRIENDLY, KINDS, RANKED, plain_ranks, value_rank
from oracles.case import (
    SPEC_CLASSES,
    AttentionSpec,
    Case,
    LayerSpec,
    MambaSpec,
    MultipleOf,
    Settings,
    Spec,
    Worker,
    build_case,
    kind_of,
)
from oracles.geometry import DTYPE_BYTES, content_bytes, page_bytes
from oracles.specs import fields_of

FEW = 2
"""Layers of a case that is tried in every fitted memory."""

MAX_FITTED = 2_000
"""Cases of few layers in fitted memory, in both planners about four seconds."""

MAX_FITTED_POWER = 14
"""A request of the default model length needs 2^9 blocks of 16 tokens."""


def with_specs(case: Case, specs: Sequence[LayerSpec]) -> Case:
    """``case`` with its spec table replaced, entry by entry."""
    rows = [(layer, cast(Spec, specs[layer.spec])) for layer, _ in rows_of(case)]
    return build_case(rows, case.settings, case.provenance)


def with_settings(case: Case, **changes: Any) -> Case:
    """``case`` with some settings replaced."""
    return structs.replace(case, settings=structs.replace(case.settings, **changes))


def default_settings(case: Case) -> Iterator[Case]:
    """Settings at their defaults: all, all but one, one."""
    workers = case.settings.workers
    default = Settings(dcp=plain_ranks(case.specs))
    yield structs.replace(case, settings=structs.replace(default, workers=_default_workers(workers)))
    names = (field.name for field in fields_of(Settings))
    changed = [name for name in names if getattr(case.settings, name) != getattr(default, name)]
    for kept in changed:
        settings = structs.replace(
            default, **{"workers": _default_workers(workers), kept: getattr(case.settings, kept)}
        )
        yield structs.replace(case, settings=settings)
    for name in changed:
        value = _default_workers(workers) if name == "workers" else getattr(default, name)
        yield with_settings(case, **{name: value})
    if any(isinstance(spec, MambaSpec) for spec in case.specs):
        # The two say the same thing and change together.
        for mode in ("none", "align"):
            specs = [structs.replace(s, mamba_cache_mode=mode) if isinstance(s, MambaSpec) else s for s in case.specs]
            other = with_specs(case, specs)
            yield with_settings(other, mamba_mode=mode)
            if mode == "none":
                # Without a mode the state must hold a whole request.
                longest = min(spec.block_size for spec in case.specs if isinstance(spec, MambaSpec))
                yield with_settings(other, mamba_mode=mode, model_len=longest)


def _default_workers(workers: Sequence[Worker]) -> tuple[Worker, ...]:
    return _with_memory(workers, Settings().workers[0].memory)


def _with_memory(workers: Sequence[Worker], memory: int) -> tuple[Worker, ...]:
    return tuple(structs.replace(worker, memory=memory) for worker in workers)


def default_fields(case: Case) -> Iterator[Case]:
    """Spec fields at their defaults: all of all specs, all of one, one field of all specs, one field of one."""
    yield with_specs(case, [_plain(spec) for spec in case.specs])
    for at, spec in enumerate(case.specs):
        yield with_spec(case, at, _plain(spec))
    names = dict.fromkeys(
        f.name
        for spec in case.specs
        for f in fields_of(type(spec))
        if not f.required and getattr(spec, f.name) != f.default
    )
    for name in names:
        yield with_specs(case, [_field_default(spec, name) for spec in case.specs])
    for at, spec in enumerate(case.specs):
        for name in names:
            yield with_spec(case, at, _field_default(spec, name))


def with_spec(case: Case, at: int, spec: LayerSpec) -> Case:
    """``case`` with one entry of its spec table replaced."""
    return with_specs(case, [*case.specs[:at], spec, *case.specs[at + 1 :]])


def _plain(spec: LayerSpec) -> LayerSpec:
    kept = {f.name: getattr(spec, f.name) for f in fields_of(type(spec)) if f.required}
    if isinstance(spec, AttentionSpec):
        kept["replicated"] = spec.replicated  # what a mode means to the case is another pass's question
    return type(spec)(**kept)


def _field_default(spec: LayerSpec, name: str) -> LayerSpec:
    for field in fields_of(type(spec)):
        if field.name == name and not field.required:
            return structs.replace(spec, **{name: field.default})
    return spec


def merge_specs(case: Case) -> Iterator[Case]:
    """The layers of one spec given another's."""
    for dropped in range(len(case.specs)):
        for kept in range(len(case.specs)):
            if kept != dropped:
                yield with_spec(case, dropped, case.specs[kept])


def padded_alone(case: Case) -> Iterator[Case]:
    """One plain layer with a stated padding: what page unification often leaves of a case."""
    if not case.layers or (len(case.layers) < 2 and getattr(case.specs[0], "page_size_padded", None) is not None):
        return
    for layer, spec in rows_of(case):
        for kind in dict.fromkeys(("full", kind_of(spec))):
            for heads in (1, 2):
                plain = plainest(kind, replicated=getattr(spec, "replicated", False))
                if isinstance(plain, AttentionSpec):
                    plain = structs.replace(plain, num_kv_heads=heads)
                padded = structs.replace(plain, page_size_padded=2 * content_bytes(plain))
                yield build_case([(layer, cast(Spec, padded))], case.settings, case.provenance)


def align_specs(case: Case) -> Iterator[Case]:
    """One field of a spec made equal to another spec's, which leaves less to compare."""
    for at, spec in enumerate(case.specs):
        for other in case.specs:
            for field in fields_of(type(spec)):
                theirs = getattr(other, field.name, None)
                if theirs is not None and theirs != getattr(spec, field.name):
                    yield with_spec(case, at, structs.replace(spec, **{field.name: theirs}))


def exchange(case: Case) -> Iterator[Case]:
    """Two specs, or one field of two specs, exchanged: of two mirrored cases the lesser one is found."""
    for one, other in itertools.combinations(range(len(case.specs)), 2):
        specs = list(case.specs)
        specs[one], specs[other] = specs[other], specs[one]
        yield with_specs(case, specs)
        for field in fields_of(type(case.specs[one])):
            a, b = getattr(case.specs[one], field.name), getattr(case.specs[other], field.name, None)
            if hasattr(case.specs[other], field.name) and a != b:
                specs = list(case.specs)
                specs[one] = structs.replace(specs[one], **{field.name: b})
                specs[other] = structs.replace(specs[other], **{field.name: a})
                yield with_specs(case, specs)


def plainer_kinds(case: Case) -> Iterator[Case]:
    """Specs of a plainer kind, with the fields that both kinds have; then of that kind with plain fields."""
    for at, spec in enumerate(case.specs):
        for kind in KINDS[: KINDS.index(kind_of(spec))]:
            for made in (converted(spec, kind), plainest(kind, replicated=getattr(spec, "replicated", False))):
                if made is not None:
                    yield with_spec(case, at, made)


def without_replication(case: Case) -> Iterator[Case]:
    """Replicated specs without their mark on one rank; as plain ones of any kind: a layer of another kind is easier
    read than a marked one.
    """
    unmarked = [structs.replace(s, replicated=False) if isinstance(s, AttentionSpec) else s for s in case.specs]
    yield with_settings(with_specs(case, unmarked), dcp=1)
    for at, spec in enumerate(case.specs):
        if isinstance(spec, AttentionSpec) and spec.replicated:
            for kind in KINDS:
                yield with_spec(case, at, plainest(kind, replicated=False))


def plain_specs(case: Case) -> Iterator[Case]:
    """The plainest spec of the same kind."""
    plain = [plainest(kind_of(s), replicated=getattr(s, "replicated", False)) for s in case.specs]
    yield with_specs(case, plain)
    for at, spec in enumerate(plain):
        yield with_spec(case, at, spec)


@functools.cache
def plainest(kind: str, *, replicated: bool) -> LayerSpec:
    """The spec of ``kind`` with every required field at its plainest value."""
    if kind == "mamba":
        return MambaSpec(block_size=16, shapes=((2048,),), dtypes=("bfloat16",))
    cls = SPEC_CLASSES[kind]
    required = {f.name: FRIENDLY[f.name][0] for f in fields_of(cls) if f.required}
    return cast(LayerSpec, msgspec.convert({"kind": kind, "replicated": replicated, **required}, type=Spec))


def converted(spec: LayerSpec, kind: str) -> LayerSpec | None:
    """``spec`` as another kind, keeping what both can say; None where they share no geometry."""
    cls = SPEC_CLASSES[kind]
    if isinstance(spec, MambaSpec) or issubclass(cls, MambaSpec):
        return None
    mine = {f.name: getattr(spec, f.name) for f in fields_of(type(spec))}
    facts: dict[str, Any] = {}
    for field in fields_of(cls):
        if field.name in mine:
            facts[field.name] = mine[field.name]
        elif field.required:
            facts[field.name] = FRIENDLY[field.name][0]
    facts["head_size_v"] = next(f.default for f in fields_of(cls) if f.name == "head_size_v")
    if kind in ("full", "mla", "sink", "rswa"):
        facts["sliding_window"] = facts["attention_chunk_size"] = None
    try:
        facts = {"kind": kind, **{k: v for k, v in facts.items() if v is not None}}
        return cast(LayerSpec, msgspec.convert(facts, type=Spec))
    except msgspec.ValidationError:
        return None


def plainer_numbers(case: Case) -> Iterator[Case]:
    """Numbers made plainer: one field in all specs alike, then one number at a time, specs before settings."""
    for name in dict.fromkeys(f.name for s in case.specs for f in fields_of(type(s))):
        values = {getattr(s, name) for s in case.specs if isinstance(getattr(s, name, None), int)}
        for value in dict.fromkeys(v for old in values for v in plainer(name, old)):
            if len(case.specs) > 1:
                yield with_specs(case, [_replaced(s, name, value) for s in case.specs])
    for at, spec in enumerate(case.specs):
        for field in fields_of(type(spec)):
            for value in _plainer_values(case, spec, field.name):
                yield with_spec(case, at, structs.replace(spec, **{field.name: value}))
    settings = case.settings
    for field in fields_of(Settings):
        old = getattr(settings, field.name)
        if isinstance(old, int) and not isinstance(old, bool):
            for value in plainer(field.name, old):
                yield with_settings(case, **{field.name: value})
    for workers in _plainer_workers(settings.workers):
        yield with_settings(case, workers=workers)
    if settings.speculative is not None:
        for name in ("tokens", "modules"):
            for value in plainer(name, getattr(settings.speculative, name)):
                yield with_settings(case, speculative=structs.replace(settings.speculative, **{name: value}))


def plainer_names(case: Case) -> Iterator[Case]:
    """More usual layouts, dtypes, quantisations, and methods (``RANKED``)."""
    settings = case.settings
    for layout in RANKED["layout"]:
        yield with_settings(case, layout=layout)
    if settings.speculative is not None:
        for method in RANKED["method"]:
            yield with_settings(case, speculative=structs.replace(settings.speculative, method=method))
    for at, spec in enumerate(case.specs):
        if isinstance(spec, MambaSpec):
            for value in RANKED["dtype"]:
                yield with_spec(case, at, structs.replace(spec, dtypes=(value,) * len(spec.dtypes)))
        for name in ("dtype", "kv_quant_mode"):
            for value in RANKED[name] if hasattr(spec, name) else ():
                yield with_spec(case, at, structs.replace(spec, **{name: value}))


def _replaced(spec: LayerSpec, name: str, value: int) -> LayerSpec:
    held = getattr(spec, name, None)
    if not isinstance(held, int) or isinstance(held, bool):
        return spec
    return structs.replace(spec, **{name: value})


def _plainer_workers(workers: tuple[Worker, ...]) -> Iterator[tuple[Worker, ...]]:
    for memory in dict.fromkeys(m for w in workers for m in plainer("memory", w.memory)):
        yield _with_memory(workers, memory)
    for at, worker in enumerate(workers):
        for memory in plainer("memory", worker.memory):
            yield (*workers[:at], structs.replace(worker, memory=memory), *workers[at + 1 :])


def memory_in_proportion(case: Case) -> Iterator[Case]:
    """Fewer layers or plainer specs, and memory in proportion: a fault at the border of what fits stays there."""
    before = _bytes_of_layers(case)
    changes = (drop_classes, lower_counts, drop_layers, plain_specs, plainer_kinds, plainer_numbers)
    for other in itertools.chain.from_iterable(change(case) for change in changes):
        after = _bytes_of_layers(other) if is_askable(other) else 0
        if 0 < after != before:
            workers = [structs.replace(w, memory=max(1, w.memory * after // before)) for w in other.settings.workers]
            yield with_settings(other, workers=tuple(workers))


def fitted_memory(case: Case) -> Iterator[Case]:
    """Memory for a power of two of blocks, or one more, so that faults at one border end at the same one."""
    units = max(map(page_bytes, case.specs), default=0), _bytes_of_layers(case)
    blocks = [2**power + more for power in range(MAX_FITTED_POWER) for more in (0, 1)]
    fitted = {unit * count for unit in units for count in blocks if unit}
    for memory in sorted(fitted, key=lambda one: (value_rank("memory", one), one)):
        yield with_settings(case, workers=_with_memory(case.settings.workers, memory))


def few_in_fitted_memory(case: Case) -> Iterator[Case]:
    """One or two layers in fitted memory, under default settings too: for a fault that shows at one count of blocks
    only, which no smaller case has by chance.
    """

    def fitted() -> Iterator[Case]:
        for fewer in itertools.chain(itertools.islice(lower_counts(case), 1), sketches(case)):
            if len(fewer.layers) <= FEW:
                default = Settings(dcp=plain_ranks(fewer.specs), workers=fewer.settings.workers)
                for one in dict.fromkeys((structs.replace(fewer, settings=default), fewer)):
                    yield from fitted_memory(one)

    return itertools.islice(fitted(), MAX_FITTED)


def _bytes_of_layers(case: Case) -> int:
    return sum(page_bytes(case.specs[layer.spec]) for layer in case.layers)


def _plainer_values(case: Case, spec: LayerSpec, name: str) -> Iterator[Any]:
    value = getattr(spec, name)
    if name == "shapes":
        yield from _plainer_shapes(case, cast(MambaSpec, spec))
    elif isinstance(value, MultipleOf):
        for number in plainer(name, value.multiple_of):
            yield MultipleOf(number)
    elif isinstance(value, str) and "/" in value:
        yield from (2, 4, "1/2", "1/4")
    elif name == "page_size_padded" and value is not None:
        pages = {page_bytes(s) for s in case.specs}
        pages |= {2 * content_bytes(spec), content_bytes(spec)}
        yield from sorted(pages - {value}, key=lambda page: value_rank(name, page))
        yield from plainer(name, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from plainer(name, value)


def _plainer_shapes(case: Case, spec: MambaSpec) -> Iterator[tuple[tuple[int, ...], ...]]:
    if len(spec.shapes) > 1:
        return  # the number of tensors changes with the dtypes: see plainer_states
    item = DTYPE_BYTES[spec.dtypes[0]]
    size = math.prod(spec.shapes[0])
    for wanted in (2048, *(page_bytes(s) // item for s in case.specs), size):
        if wanted >= 1:
            yield ((wanted,),)
    for value in plainer("shapes", size):
        yield ((value,),)


def plainer_states(case: Case) -> Iterator[Case]:
    """Recurrent state in one tensor of the same bytes, or without one of its tensors."""
    for at, spec in enumerate(case.specs):
        if not isinstance(spec, MambaSpec) or len(spec.shapes) == 1:
            continue
        total = content_bytes(spec)
        dtype = "bfloat16" if total % 2 == 0 else "uint8"
        size = total // DTYPE_BYTES[dtype]
        yield with_spec(case, at, structs.replace(spec, shapes=((size,),), dtypes=(dtype,)))
        for kept in range(len(spec.shapes)):
            yield with_spec(case, at, structs.replace(spec, shapes=(spec.shapes[kept],), dtypes=(spec.dtypes[kept],)))


def plainer(field: str, value: int) -> Iterator[int]:
    """Plainer values than ``value`` for ``field``, plainest first; none is negative."""
    rank = value_rank(field, value)
    power = 1 << max(0, value.bit_length() - 1)
    odd = (power, 2 * power, value & (value - 1), value // 2, (value // 16) * 16, value // 3, value // 5, value - 1)
    for one in dict.fromkeys((*FRIENDLY.get(field, ()), *odd)):
        if one != value and one >= 0 and value_rank(field, one) < rank:
            yield one


Pass = Callable[[Case], Iterator[Case]]
