"""The palette of the catalogue: plain specs and settings, and those a step or two from plain, each with its rank."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from msgspec import structs

from fuzz.minimise.fields import plainest, with_spec
from fuzz.minimise.order import FRIENDLY, KINDS, RANKED, fields_changed, numbers_rank, settings_changed
from oracles.case import AttentionSpec, Case, Settings, Spec, Worker, kind_of
from oracles.geometry import content_bytes

SPEC_STEPS: dict[str, tuple[Any, ...]] = {
    "block_size": (32, 3),
    "num_kv_heads": (2, 3, 4),
    "head_size": (128, 1024),
    "tokens_per_state": (2,),
    "attention_chunk_size": (128,),
    "sliding_window": (128,),
    "alignment": (576,),
    "block_stride_alignment": (512, 576),
    "dtype": ("float32",),
    "shapes": (((4096,),),),
}
"""Values a step from the plainest spec, by field; a kind takes the fields that it has."""

PADDINGS = (1, 2)
"""Stated pages, in contents of the same spec."""

SETTING_STEPS: dict[str, tuple[Any, ...]] = {
    "dcp": (2, 4),
    "layout": ("BLNHC", "LHBNC"),
    "hybrid_manager": (False,),
    "prefix_caching": (False,),
    "model_len": (16, 1024),
    "prefix_match_unit": (2, 16, 32),
    "block_override": (64,),
}
"""Values a step from the default settings, by setting."""

MEMORIES = (2**22, 2**24)


T_co = TypeVar("T_co", covariant=True)


class Choice(NamedTuple, Generic[T_co]):
    """A spec or settings of the palette: how many steps from plain, and its part of ``order_key``."""

    value: T_co
    steps: int
    fields: int
    plainness: int
    numbers: int


@functools.cache
def specs_of(kind: str, replicated: bool, most: int) -> tuple[Choice[Spec], ...]:
    """The plainest spec of a kind and those at most ``most`` steps from it."""
    plain = cast(Spec, plainest(kind, replicated=replicated))
    made: dict[Spec, int] = {plain: 0}
    for steps in range(1, most + 1):
        for spec in [one for one, taken in made.items() if taken == steps - 1]:
            for changed in _a_step_from(spec, plain):
                made.setdefault(changed, steps)
    return tuple(
        Choice(spec, steps, fields_changed(spec), KINDS.index(kind), numbers_rank([spec]))
        for spec, steps in made.items()
    )


def _a_step_from(spec: Spec, plain: Spec) -> Iterator[Spec]:
    """One more field changed; a page is stated last, since it follows from the others."""
    if getattr(spec, "page_size_padded", None) is not None:
        return
    for name, values in SPEC_STEPS.items():
        if hasattr(spec, name) and getattr(spec, name) == getattr(plain, name):
            yield from (structs.replace(spec, **{name: value}) for value in values)
    if isinstance(spec, AttentionSpec):
        contents = content_bytes(spec)
        for times in PADDINGS:
            yield cast(Spec, structs.replace(spec, page_size_padded=contents * times))


def settings_like(held: Settings) -> tuple[Choice[Settings], ...]:
    """The defaults, those a step from them, and ``held``. A setting that ``held`` has changed is no step: the fault
    is likely to need it.
    """
    tight = held.workers[0].memory != Settings().workers[0].memory
    needed = {name for name in SETTING_STEPS if getattr(held, name) != getattr(Settings(), name)}
    bases = dict.fromkeys(
        structs.replace(Settings(), speculative=speculative, layout_origin=held.layout_origin, workers=workers)
        for speculative in (None, held.speculative)
        for workers in (Settings().workers, _stages(held), _unequal(held))
    )
    made: dict[Settings, int] = dict.fromkeys(bases, 0)
    for setting in a_step_from_settings(next(iter(bases))):
        changed = {name for name in SETTING_STEPS if getattr(setting, name) != getattr(Settings(), name)}
        made.setdefault(setting, 0 if changed <= needed and (changed or tight) else 1)
    for name in needed:
        made.setdefault(structs.replace(next(iter(bases)), **{name: getattr(held, name)}), 0)
    for one in (structs.replace(held, workers=(structs.replace(held.workers[0], stage=0),)), held):
        made.setdefault(one, 0)
    return tuple(
        Choice(one, steps, settings_changed(one), 0, numbers_rank([one, *one.workers, *_drafting(one)]))
        for one, steps in made.items()
    )


def a_step_from_settings(base: Settings) -> Iterator[Settings]:
    """``base`` with one setting at another value of the palette."""
    for name, values in SETTING_STEPS.items():
        yield from (structs.replace(base, **{name: value}) for value in values)
    for memory in MEMORIES:
        yield structs.replace(base, workers=tuple(structs.replace(one, memory=memory) for one in base.workers))
    if base.speculative is not None:
        for method in RANKED["method"]:
            yield structs.replace(base, speculative=structs.replace(base.speculative, method=method))


def aside(case: Case) -> Iterator[Case]:
    """``case`` with one field of a spec, or one setting, at another value of the palette, plainer or not."""
    for at, spec in enumerate(case.specs):
        for name, values in SPEC_STEPS.items():
            for value in (*FRIENDLY.get(name, ())[:1], *values) if hasattr(spec, name) else ():
                yield with_spec(case, at, structs.replace(spec, **{name: value}))
    for settings in a_step_from_settings(case.settings):
        yield structs.replace(case, settings=settings)


def _stages(held: Settings) -> tuple[Worker, ...]:
    memory = Settings().workers[0].memory
    return tuple(Worker(memory=memory, stage=stage) for stage in range(held.stages))


def _unequal(held: Settings) -> tuple[Worker, ...]:
    """Two workers of one stage, the second with less memory, where ``held`` has several."""
    return (Settings().workers[0], Worker(memory=MEMORIES[-1]))[: len(held.workers)]


def _drafting(settings: Settings) -> Sequence[Any]:
    return () if settings.speculative is None else (settings.speculative,)


def kinds_and_modes(specs: Sequence[Spec], common: Sequence[str]) -> list[tuple[str, bool]]:
    """The kinds to try in each mode that occurs among ``specs``."""
    kinds = dict.fromkeys((*common, *map(kind_of, specs)))
    modes = sorted({bool(getattr(spec, "replicated", False)) for spec in specs})
    return list(itertools.product(kinds, modes))
