"""The order of cases: which of two that show one fault a reader would rather have.

A total order, so that minimising ends, and ends at the same case from wherever it begins: fewer layers, then fewer
distinct specs, then fewer settings and fields that are not the default, then plainer kinds and rounder numbers, and
last the canonical bytes, shorter first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from oracles.capacity import splits_window
from oracles.case import (
    Case,
    CircularBufferSpec,
    EncoderOnlySpec,
    LayerSpec,
    MambaSpec,
    MultipleOf,
    Settings,
    canonical,
    kind_of,
)
from oracles.specs import fields_of

Key = tuple[int, int, int, int, int, int, int, bytes]

KINDS = (
    "full", "sliding_window", "mla", "mamba", "chunked_local", "sliding_window_mla", "sink", "rswa", "cross",
    "circular_buffer", "hidden_state", "encoder_only",
)  # fmt: skip
"""From the kind that every reader knows to the one that few do."""

FRIENDLY: dict[str, tuple[int, ...]] = {
    "block_size": (16, 32, 64, 128, 256),
    "num_kv_heads": (1, 2, 4, 8),
    "num_head_slots": (1, 2, 4),
    "head_size": (64, 128, 256, 512),
    "head_size_v": (64, 128, 256, 512),
    "sliding_window": (128, 256, 512, 1024, 2048),
    "attention_chunk_size": (128, 256, 512, 1024),
    "rswa_window": (128, 256, 512, 1024),
    "tokens_per_state": (1, 2, 4),
    "model_len": (8192, 4096, 1024, 16384, 32768, 131072),
    "batched_tokens": (2048, 1024, 4096, 8192),
    "memory": (2**30, 2**20, 2**24, 2**34),
    "dcp": (1, 2, 4, 8),
    "tp": (1, 2, 4, 8),
    "tokens": (1, 2, 3, 4),
    "alignment": (576, 512),
    "block_stride_alignment": (512, 576, 1152),
}
"""Values that a reader takes in without asking why, plainest first, by field."""


RANKED: dict[str, tuple[str, ...]] = {
    "layout": ("LBNHC", "BLNHC", "LBHNC", "BLHNC", "LHBNC", "BHLNC"),
    "dtype": ("bfloat16", "float16", "float32", "uint8", "float8_e4m3fn", "float8_e5m2"),
    "kv_quant_mode": ("NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD"),
    "method": ("eagle", "eagle3", "mtp", "draft_model"),
    "mamba_mode": ("none", "align", "all"),
    "mamba_cache_mode": ("none", "align", "all"),
}
"""Names that a setting or field may have, the most usual first, by field."""

_ODD = 16
"""Rank at which values that are not friendly begin; above the length of every friendly list."""


def order_key(case: Case) -> Key:
    """The key by which cases are ordered; the least is the best."""
    bytes_ = canonical(case)
    fields = settings_changed(case.settings) + sum(fields_changed(spec) for spec in case.specs)
    fields += case.settings.dcp != plain_ranks(case.specs)
    fields += sum(layer.draft for layer in case.layers)
    plainness = sum(KINDS.index(kind_of(spec)) for spec in case.specs)
    strange = sum(layer.name != name for layer, name in zip(case.layers, plain_names(case), strict=True))
    return (
        len(case.layers), len(case.specs), fields, plainness, _numbers_rank(case), strange,
        len(bytes_), bytes_,
    )  # fmt: skip


def plain_names(case: Case) -> list[str]:
    """A short name for each layer: ``t.N`` for the target's, ``d.N`` for the draft's."""
    numbers = {False: itertools.count(), True: itertools.count()}
    return [f"{'d' if layer.draft else 't'}.{next(numbers[layer.draft])}" for layer in case.layers]


def plain_ranks(specs: Iterable[LayerSpec]) -> int:
    """The plainest number of context-parallel ranks: one, but two beside a replicated layer, whose mark says nothing
    on one rank. A reader would ask what a fault between modes has to do with a model that has none.
    """
    return 2 if any(getattr(spec, "replicated", False) for spec in specs) else 1


def settings_changed(settings: Settings) -> int:
    """How many settings but the ranks (``plain_ranks``) are not the default; a worker beyond the first counts too."""
    changed = [f.name for f in fields_of(Settings) if f.name != "dcp" and getattr(settings, f.name) != f.default]
    return len(changed) + len(settings.workers) - 1


def fields_changed(spec: LayerSpec) -> int:
    """How many optional fields of a spec are not the default."""
    return len([f for f in fields_of(type(spec)) if not f.required and getattr(spec, f.name) != f.default])


def _numbers_rank(case: Case) -> int:
    owners: list[Struct] = [case.settings, *case.settings.workers, *case.specs]
    if case.settings.speculative is not None:
        owners.append(case.settings.speculative)
    return numbers_rank(owners)


def numbers_rank(owners: Iterable[Struct]) -> int:
    """How far the values of all fields are from plain, together (``value_rank``)."""
    total = 0
    for owner in owners:
        for field in fields_of(type(owner)):
            total += value_rank(field.name, getattr(owner, field.name))
    return total


def value_rank(field: str, value: Any) -> int:
    """How far ``value`` is from plain: 0 for the plainest; odd numbers rank by size and by set bits."""
    if value is None or isinstance(value, bool):
        return 0
    if isinstance(value, int):
        friendly = FRIENDLY.get(field, ())
        return friendly.index(value) if value in friendly else _ODD + roundness(value)
    if isinstance(value, str):
        names = RANKED.get(field, ())
        return names.index(value) if value in names else len(names) + 4 * value.count("/")
    if isinstance(value, MultipleOf):
        return 2 * _ODD + roundness(value.multiple_of)
    if isinstance(value, tuple) and field == "dtypes":
        return sum(value_rank("dtype", name) for name in value)
    if isinstance(value, tuple) and field == "shapes":
        return sum(_ODD + sum(roundness(size) for size in shape) + 4 * len(shape) for shape in value)
    return 0


def roundness(value: int) -> int:
    """A power of two counts its exponent; every further set bit counts as four doublings."""
    return value.bit_length() + 4 * max(0, value.bit_count() - 1)


def limits(case: Case) -> frozenset[str]:
    """What in a case vLLM documents as not working, or has no use for: minimising must not wander into it.

    A refusal there is often worded like the fault in search, and a witness inside would be no fault at all.
    """
    found = set()
    settings = case.settings
    for spec in case.specs:
        if splits_window(spec, settings.dcp):
            found.add("a window split over ranks")
        if isinstance(spec, EncoderOnlySpec):
            found.add("an encoder-only layer")
        if isinstance(spec, CircularBufferSpec) and settings.prefix_caching:
            found.add("a ring buffer beside prefix caching")
        if isinstance(spec, MambaSpec):
            found |= _state_limits(spec, settings)
    if case.settings.layout_origin == "forced":
        found.add("a forced layout")
    if any(not any(layer.stage == worker.stage for layer in case.layers) for worker in settings.workers):
        found.add("a stage without layers")
    if not case.layers:
        found.add("no layers")
    return frozenset(found)


def _state_limits(spec: MambaSpec, settings: Settings) -> set[str]:
    found = set()
    if spec.mamba_cache_mode != settings.mamba_mode:
        found.add("Mamba modes that differ")
    if settings.mamba_mode == "none" and spec.block_size < settings.model_len:
        found.add("Mamba mode none with short blocks")
    return found


__all__ = ["FRIENDLY", "KINDS", "RANKED", "Key", "limits", "order_key", "value_rank"]
