"""What the generator may say: the *vocabulary* of the planners asked, and the *shape* of the cases wanted."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec
from msgspec import Struct

from fuzz.planners.protocol import Hello
from oracles.case import SPEC_CLASSES, AttentionSpec, Case, Spec, kind_of
from oracles.specs import MultipleOf, fields_of

YOUNG_FIELDS = {"topk_buffer_width"}
"""Fields that 0.33 has and 0.32 has not; the default vocabulary is what both know."""

COMMON_QUANT_MODES = ("NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD")
"""Quantisation modes that every release since 0.26 names alike."""

PACKED_QUANT_MODES = (*COMMON_QUANT_MODES, "NVFP4", "INT4_PER_TOKEN_HEAD", "NVFP4_DS_MLA")
"""Those of the releases that know layouts."""


class Vocabulary(Struct, frozen=True, kw_only=True):
    """Kinds, fields and settings that the planners can express.

    ``fields`` maps each kind to its case fields; a kind that is missing is never drawn. ``fractions`` tells
    whether a state may stand for part of a token, ``multiple_of`` whether strides may ask for kernel blocks.
    """

    fields: dict[str, frozenset[str]]
    layouts: bool = True
    fractions: bool = True
    multiple_of: bool = True
    quant_modes: tuple[str, ...] = PACKED_QUANT_MODES

    def __hash__(self) -> int:
        return hash((tuple(self.fields), self.layouts, self.fractions, self.multiple_of, self.quant_modes))

    def knows(self, kind: str, field: str) -> bool:
        """Whether the planners can say ``field`` of ``kind``."""
        return field in self.fields.get(kind, frozenset())

    def can_say(self, spec: Spec) -> bool:
        """Whether the planners can express ``spec``: its kind, and every field in which it is not the default."""
        known = self.fields.get(kind_of(spec))
        if known is None or any(name not in known for name in spoken_fields(spec)):
            return False
        if isinstance(spec.block_stride_alignment, MultipleOf) and not self.multiple_of:
            return False
        if not isinstance(spec, AttentionSpec):
            return True
        return spec.kv_quant_mode in self.quant_modes and (self.fractions or isinstance(spec.tokens_per_state, int))

    def can_ask(self, case: Case) -> bool:
        """Whether the planners can express every layer of ``case``."""
        return all(map(self.can_say, case.specs))

    def replicable(self, kind: str) -> bool:
        """Whether a cache of ``kind`` can be kept whole on every DCP rank."""
        return self.knows(kind, "replicated")


@functools.cache
def default_vocabulary() -> Vocabulary:
    """What vLLM 0.32 and 0.33 both know."""
    return Vocabulary(
        fields={kind: frozenset(cls.__struct_fields__) - YOUNG_FIELDS for kind, cls in SPEC_CLASSES.items()}
    )


def vocabulary_of(*hellos: Hello) -> Vocabulary:
    """What all of these planners can express, from their greetings."""
    shared = [set(hello.capabilities) for hello in hellos]
    capabilities = set.intersection(*shared) if shared else set()
    fields = {
        kind: frozenset.intersection(*(frozenset(hello.fields.get(kind, ())) for hello in hellos))
        for kind in SPEC_CLASSES
        if all(kind in hello.fields for hello in hellos)
    }
    layouts = "layouts" in capabilities
    return Vocabulary(
        fields=fields,
        layouts=layouts,
        # Trees without layouts count tokens per state by a whole "compress_ratio".
        fractions=layouts,
        multiple_of="kernel_block_alignment" in capabilities,
        quant_modes=PACKED_QUANT_MODES if layouts else COMMON_QUANT_MODES,
    )


@functools.lru_cache(maxsize=4096)
def spoken_fields(spec: Spec) -> tuple[str, ...]:
    """The fields of a spec that must be said, because they are not at their default."""
    return tuple(
        field.name
        for field in fields_of(type(spec))
        if not field.required and getattr(spec, field.name) != field.default
    )


class Shape(Struct, frozen=True, kw_only=True):
    """What kind of cases to draw.

    ``modes``: ``mixed`` has replicated attention beside other layers, ``single`` has not. ``max_layers`` bounds
    the target's layers; a draft adds at most eight. The two permissions let in what vLLM documents as not
    working: sliding windows split over DCP ranks (a bare assertion), and encoder-only layers (refused by its registry).
    """

    vocabulary: Vocabulary = msgspec.field(default_factory=default_vocabulary)
    modes: Literal["any", "mixed", "single"] = "any"
    max_layers: int = 64
    sharded_windows: bool = False
    encoder_only: bool = False
