"""Passes over the layers: each yields cases with fewer or plainer layers, the boldest first.

A *run* is a stretch of neighbouring layers that are alike: same spec, stage and draft mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from msgspec import ValidationError, json, structs

from fuzz.minimise.order import plain_names
from oracles.case import Case, CaseError, Layer, Spec, build_case, canonical, check_case, keep_layers

Rows = list[tuple[Layer, Spec]]
Class = tuple[int, int, bool]

MAX_CLASSES = 12
"""Above this, choosing three classes at a time would cost more than the halving that follows."""


def is_askable(case: Case) -> bool:
    """Whether ``case`` is one that a case file could hold; passes may offer others."""
    try:
        json.decode(json.encode(case), type=Case)  # first: the check counts on numbers within their bounds
        check_case(case)
    except (CaseError, ValidationError):
        return False
    return True


def rows_of(case: Case) -> Rows:
    """Each layer with its spec."""
    return [(layer, case.specs[layer.spec]) for layer in case.layers]


def _class(layer: Layer) -> Class:
    return layer.spec, layer.stage, layer.draft


def _classes(case: Case) -> list[Class]:
    return list(dict.fromkeys(_class(layer) for layer in case.layers))


def drop_runs(layers: list[Layer]) -> Iterator[list[Layer]]:
    """Ever shorter stretches left out: halves, quarters, … single layers."""
    length = len(layers) // 2
    while length >= 1:
        for start in range(0, len(layers), length):
            yield layers[:start] + layers[start + length :]
        length //= 2


def sketches(case: Case) -> Iterator[Case]:
    """One layer of each of one, two or three classes: most faults need no more."""
    classes = _classes(case)
    first: dict[Class, Layer] = {}
    for layer in case.layers:
        first.setdefault(_class(layer), layer)
    for size in (1, 2, 3) if len(classes) <= MAX_CLASSES else (1, 2):
        for chosen in itertools.combinations(classes, size):
            yield keep_layers(case, [layer for layer in case.layers if layer in {first[c] for c in chosen}])


def drop_classes(case: Case) -> Iterator[Case]:
    """All layers of one spec, stage and mark left out; then all but those of one or two."""
    classes = _classes(case)
    if len(classes) > 1:
        for size in (1, 2):
            for kept in itertools.combinations(classes, size) if size < len(classes) else ():
                yield keep_layers(case, [x for x in case.layers if _class(x) in kept])
        for dropped in classes:
            yield keep_layers(case, [x for x in case.layers if _class(x) != dropped])


def lower_counts(case: Case) -> Iterator[Case]:
    """Each class cut to one, to half, and by one layer; all classes cut at once first."""
    classes = _classes(case)
    for most in (1, 2, 3):
        yield keep_layers(case, list(_at_most(case.layers, dict.fromkeys(classes, most))))
    for one in classes:
        count = sum(_class(x) == one for x in case.layers)
        for fewer in dict.fromkeys((1, 2, count // 2, count - 1)):
            if 0 < fewer < count:
                yield keep_layers(case, list(_at_most(case.layers, {one: fewer})))


def _at_most(layers: Iterable[Layer], most: dict[Class, int]) -> Iterator[Layer]:
    left = dict(most)
    for layer in layers:
        key = _class(layer)
        if key in left:
            if not left[key]:
                continue
            left[key] -= 1
        yield layer


def drop_layers(case: Case) -> Iterator[Case]:
    """Stretches of layers left out, by position."""
    for kept in drop_runs(list(case.layers)):
        yield keep_layers(case, kept)


def drop_draft_marks(case: Case) -> Iterator[Case]:
    """Draft marks taken off: all, then those of one class."""
    yield _unmarked(case, set(_classes(case)))
    for one in _classes(case):
        if one[2]:
            yield _unmarked(case, {one})


def _unmarked(case: Case, classes: set[Class]) -> Case:
    return build_case(
        [(structs.replace(x, draft=False) if _class(x) in classes else x, s) for x, s in rows_of(case)],
        case.settings, case.provenance,
    )  # fmt: skip


def drop_stages(case: Case) -> Iterator[Case]:
    """One stage with the first worker; then without the workers and the layers of one stage."""
    settings = case.settings
    if len(settings.workers) == 1:
        return
    one_stage = [(structs.replace(layer, stage=0), spec) for layer, spec in rows_of(case)]
    for worker in dict.fromkeys(structs.replace(w, stage=0) for w in settings.workers):
        yield build_case(one_stage, structs.replace(settings, workers=(worker,)), case.provenance)
    for stage in range(settings.stages):
        workers = tuple(
            structs.replace(w, stage=w.stage - (w.stage > stage)) for w in settings.workers if w.stage != stage
        )
        if not workers:
            continue
        rows = [
            (structs.replace(layer, stage=layer.stage - (layer.stage > stage)), spec) for layer, spec in rows_of(case)
        ]
        smaller = structs.replace(settings, workers=workers)
        kept = [row for row, layer in zip(rows, case.layers, strict=True) if layer.stage != stage]
        yield build_case(kept, smaller, case.provenance)
        moved = [
            (structs.replace(row[0], stage=min(row[0].stage, len(workers) - 1)), row[1]) for row in rows
        ]  # fmt: skip
        yield build_case(moved, smaller, case.provenance)
    for at in range(len(settings.workers)):
        workers = settings.workers[:at] + settings.workers[at + 1 :]
        yield structs.replace(case, settings=structs.replace(settings, workers=workers))


def move_stages(case: Case) -> Iterator[Case]:
    """A layer moved to the first stage."""
    for at, layer in enumerate(case.layers):
        if layer.stage:
            rows = rows_of(case)
            rows[at] = (structs.replace(layer, stage=0), rows[at][1])
            yield build_case(rows, case.settings, case.provenance)


def sort_layers(case: Case) -> Iterator[Case]:
    """Layers in another order under the names of their places: alike ones side by side, then any two exchanged."""
    by_class = sorted(case.layers, key=_class)
    yield in_order(case, by_class)
    yield in_order(case, by_class[::-1])
    yield in_order(case, sorted(case.layers, key=lambda x: (x.draft, canonical(keep_layers(case, [x])))))
    for one, other in itertools.combinations(range(len(case.layers)), 2):
        layers = list(case.layers)
        layers[one], layers[other] = layers[other], layers[one]
        yield in_order(case, layers)


def in_order(case: Case, layers: list[Layer]) -> Case:
    """``case`` with its layers in this order; short names go by place, others stay with their layers."""
    moved = keep_layers(case, layers)
    if [layer.name for layer in case.layers] != plain_names(case):
        return moved
    rows = [(structs.replace(x, name=name), s) for (x, s), name in zip(rows_of(moved), plain_names(moved), strict=True)]
    return build_case(rows, case.settings, case.provenance)


def rename_layers(case: Case) -> Iterator[Case]:
    """Short names (``plain_names``): all at once, then one by one."""
    rows = rows_of(case)
    renamed = [
        (structs.replace(layer, name=name), spec) for (layer, spec), name in zip(rows, plain_names(case), strict=True)
    ]
    yield build_case(renamed, case.settings, case.provenance)
    for at in range(len(rows)):
        yield build_case([*rows[:at], renamed[at], *rows[at + 1 :]], case.settings, case.provenance)
