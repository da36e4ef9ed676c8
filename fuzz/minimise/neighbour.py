"""The nearest passing neighbour: a case that differs from the minimal one in one thing and shows no fault.

It says what the fault hangs on: "passes with block_size 32 instead of 48".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from fuzz.minimise.fields import with_settings, with_specs
from fuzz.minimise.layers import rows_of
from fuzz.minimise.order import FRIENDLY
from oracles.case import AttentionSpec, Case, LayerSpec, MambaSpec, build_case, keep_layers
from oracles.geometry import content_bytes, page_bytes
from oracles.specs import fields_of

LAYOUTS = ("LBNHC", "BLNHC", "LBHNC", "BLHNC")
"""The layouts that vLLM's backends ask for most; the first two differ in one thing."""


class Variation(Struct, frozen=True, kw_only=True):
    """A changed case and the change in words."""

    case: Case
    words: str


def variations(case: Case) -> Iterator[Variation]:
    """Cases that differ in one thing, the smallest and most telling changes first."""
    for at, field in _fields_in_turn(case):
        spec = case.specs[at]
        for value in _other_values(case, spec, field):
            changed = [*case.specs[:at], structs.replace(spec, **{field.name: value}), *case.specs[at + 1 :]]
            words = _words(field.name, value, getattr(spec, field.name))
            yield Variation(case=with_specs(case, changed), words=f"{words} in {_owners(case, at)}")
    yield from _other_settings(case)
    yield from _other_layers(case)


def _fields_in_turn(case: Case) -> list[tuple[int, structs.FieldInfo]]:
    """Every field of every spec; the mode last, because a case of one mode passes many laws for want of a second."""
    found = [(at, field) for at, spec in enumerate(case.specs) for field in fields_of(type(spec))]
    return sorted(found, key=lambda row: row[1].name == "replicated")


def _other_values(case: Case, spec: LayerSpec, field: structs.FieldInfo) -> Iterator[Any]:
    name, value = field.name, getattr(spec, field.name)
    if name == "shapes" and isinstance(spec, MambaSpec):
        pages = [page_bytes(other) for other in case.specs if other is not spec]
        item = max(1, content_bytes(spec) // max(1, spec.shapes[0][0]))
        yield from (((page // item,),) for page in pages if page % item == 0 and len(spec.shapes) == 1)
        return
    if isinstance(value, bool):
        yield not value
        return
    if isinstance(value, int):
        theirs = {getattr(other, name, None) for other in case.specs if other is not spec}
        near = {*FRIENDLY.get(name, ()), 2 * value, value // 2, *(t for t in theirs if isinstance(t, int))}
        # By ratio, and up before down: 32 is nearer to 16 than 8 is to a reader who asks what would help.
        others = (v for v in near if v != value and v >= 1)
        yield from sorted(others, key=lambda v: (max(v, value) / max(1, min(v, value)), v < value))
        if name == "page_size_padded":
            yield from (2 * page_bytes(other) for other in case.specs)
    if not field.required and value != field.default:
        yield field.default


def _owners(case: Case, at: int) -> str:
    names = [layer.name for layer in case.layers if layer.spec == at]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _words(name: str, value: Any, old: Any) -> str:
    if isinstance(value, bool):
        return f"{name} {'on' if value else 'off'}"
    if value is None:
        return f"no {name} instead of {_shown(old)}"
    return f"{name} {_shown(value)} instead of {_shown(old)}"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and value > 9999 else str(value)


def _other_settings(case: Case) -> Iterator[Variation]:
    settings = case.settings
    for field in fields_of(type(settings)):
        old = getattr(settings, field.name)
        if field.name in ("workers", "speculative", "layout_origin"):
            continue
        others: Sequence[Any] = ()
        if field.name == "layout":
            others = [layout for layout in LAYOUTS if layout != old]
        elif isinstance(old, bool):
            others = [not old]
        elif isinstance(old, int):
            others = sorted((v for v in FRIENDLY.get(field.name, ()) if v != old), key=lambda v: abs(v - old))
        if old != field.default and field.default not in others:
            others = [field.default, *others]
        for value in others:
            yield Variation(case=with_settings(case, **{field.name: value}), words=_words(field.name, value, old))
    if settings.speculative is not None:
        yield Variation(case=with_settings(case, speculative=None), words="no speculative decoding")
    if len(settings.workers) > 1:
        one = (structs.replace(settings.workers[0], stage=0),)
        rows = [(structs.replace(layer, stage=0), spec) for layer, spec in rows_of(case)]
        moved = build_case(rows, structs.replace(settings, workers=one), case.provenance)
        yield Variation(case=moved, words=f"one worker instead of {len(settings.workers)}")
    more = tuple(structs.replace(worker, memory=16 * worker.memory) for worker in settings.workers)
    yield Variation(case=with_settings(case, workers=more), words="sixteen times the memory")


def _other_layers(case: Case) -> Iterator[Variation]:
    for at, layer in enumerate(case.layers):
        if len(case.layers) > 1:
            kept = [*case.layers[:at], *case.layers[at + 1 :]]
            yield Variation(case=keep_layers(case, kept), words=f"layer {layer.name} left out")
    for at, layer in enumerate(case.layers):
        if layer.draft:
            rows = rows_of(case)
            rows[at] = (structs.replace(layer, draft=False), rows[at][1])
            marked = build_case(rows, case.settings, case.provenance)
            yield Variation(case=marked, words=f"layer {layer.name} not marked as a draft's")
    for at, spec in enumerate(case.specs):
        if isinstance(spec, AttentionSpec) and len(case.layers) < 64:
            twin = next(layer for layer in case.layers if layer.spec == at)
            rows = [*rows_of(case), (structs.replace(twin, name=f"{twin.name[:200]}.more.0"), spec)]
            more = build_case(rows, case.settings, case.provenance)
            yield Variation(case=more, words=f"one more layer like {twin.name}")
