"""A *layer spec* is what one layer caches: kind, block size, heads, dtype, window, state, and how DCP treats it.

One frozen type for each kind that vLLM 0.32 and 0.33 know. Units: block sizes, windows, chunks and lengths are in
tokens; pages, paddings and alignments in bytes.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

Tokens = Annotated[int, Meta(ge=1, le=2**24)]
Count = Annotated[int, Meta(ge=1, le=2**20)]
Natural = Annotated[int, Meta(ge=0, le=2**24)]
Bytes = Annotated[int, Meta(ge=1, le=2**50)]
Text = Annotated[str, Meta(min_length=1, max_length=256)]
Fraction = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}/[1-9][0-9]{0,5}(?!\n)$")]
DType = Literal[
    "float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2",
    "int64", "int32", "int16", "int8", "uint8",
]  # fmt: skip
Layout = Literal["LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]
Mode = Literal["sharded", "replicated", "recurrent"]


class CaseError(ValueError):
    """A case that cannot be asked: names the field and the remedy."""


@functools.cache
def fields_of(cls: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    """The fields of ``cls``. Kept, because msgspec evaluates every annotation anew at each call."""
    return structs.fields(cls)


def intern_defaults(value: Struct) -> None:
    """Makes fields that *equal* their default *be* it: msgspec leaves out defaults by identity, and a case
    that states one must have the id of a case that does not.
    """
    for name, default in _large_defaults(type(value)):
        held = getattr(value, name)
        if held is not default and held == default:
            structs.force_setattr(value, name, default)


@functools.cache
def _large_defaults(cls: type[Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of ``cls`` whose default may exist twice in memory (small integers and None do not)."""
    return tuple(
        (field.name, field.default)
        for field in fields_of(cls)
        if isinstance(field.default, str | tuple | Struct) or (isinstance(field.default, int) and field.default > 256)
    )


class MultipleOf(Struct, frozen=True, forbid_unknown_fields=True):
    """An alignment in whole kernel blocks of up to ``multiple_of`` tokens (vLLM 0.32's ``MultipleOf``)."""

    multiple_of: Tokens


class LayerSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind"):
    """What one layer caches. ``block_size`` is in tokens (for a ring buffer: its slots)."""

    block_size: Tokens
    block_stride_alignment: Bytes | MultipleOf | None = None

    def __post_init__(self) -> None:
        intern_defaults(self)


class AttentionSpec(LayerSpec, frozen=True, kw_only=True, omit_defaults=True):
    """Keys and values by token position.

    ``replicated`` caches keep the whole sequence on every DCP rank; the others split it. ``head_size_v`` of
    None means ``head_size``. ``page_size_padded`` states a page larger than its content. ``num_head_slots``
    and ``state_content_bytes`` replace heads and bytes per state where a backend packs them.
    ``tokens_per_state`` above 1 compresses; a fraction such as "1/4" stores several states per token.
    """

    num_kv_heads: Count
    head_size: Natural
    dtype: DType = "bfloat16"
    replicated: bool = False
    head_size_v: Natural | None = None
    kv_quant_mode: Text = "NONE"
    page_size_padded: Bytes | None = None
    num_head_slots: Count | None = None
    state_content_bytes: Count | None = None
    tokens_per_state: Tokens | Fraction = 1
    max_tp_shards: Count | None = None

    def __post_init__(self) -> None:
        intern_defaults(self)
        # One spelling for one geometry, or equal specs would have different ids.
        if self.head_size_v is not None and self.head_size_v == self.head_size and not is_latent(self):
            structs.force_setattr(self, "head_size_v", None)


class FullSpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="full"):
    """Full attention. ``sliding_window`` or ``attention_chunk_size`` record a layer that is only *computed*
    locally while its cache is allocated for the whole sequence.
    """

    sliding_window: Tokens | None = None
    attention_chunk_size: Tokens | None = None
    non_causal: bool = False


class MlaSpec(FullSpec, frozen=True, kw_only=True, omit_defaults=True, tag="mla"):
    """Multi-head latent attention: one latent vector per state, no value half."""

    head_size_v: Natural | None = 0
    cache_dtype_str: Text | None = None
    alignment: Bytes | None = None
    model_version: Text | None = None
    cache_role: Literal["sparse", "indexer"] = "sparse"
    is_index_group_leader: bool = False
    non_causal_multi_token_decode: bool = False
    topk_buffer_width: Count | None = None


class HiddenStateSpec(MlaSpec, frozen=True, kw_only=True, omit_defaults=True, tag="hidden_state"):
    """Hidden states kept for extraction; planned in a group of their own."""


class RSwaSpec(FullSpec, frozen=True, kw_only=True, omit_defaults=True, tag="rswa"):
    """Reference sliding window: the prompt stays visible, generated tokens slide."""

    rswa_window: Tokens


class SinkSpec(FullSpec, frozen=True, kw_only=True, omit_defaults=True, tag="sink"):
    """Full attention with ``sink_len`` leading tokens kept apart."""

    sink_len: Natural | None = None


class ChunkedLocalSpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="chunked_local"):
    """Attention inside fixed chunks of the sequence."""

    attention_chunk_size: Tokens


class SlidingWindowSpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="sliding_window"):
    """Attention to the last ``sliding_window`` tokens."""

    sliding_window: Tokens
    extra_retained_tokens: Natural = 0


class SlidingWindowMlaSpec(SlidingWindowSpec, frozen=True, kw_only=True, omit_defaults=True, tag="sliding_window_mla"):
    """A sliding window over latent vectors."""

    head_size_v: Natural | None = 0
    cache_dtype_str: Text | None = None
    alignment: Bytes | None = None
    model_version: Literal["deepseek_v4"] | None = None
    bounded_replay: bool = False


class CircularBufferSpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="circular_buffer"):
    """One ring of ``block_size`` slots per request; never prefix-cached."""


class CrossSpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="cross"):
    """Encoder states read by a decoder layer."""


class EncoderOnlySpec(AttentionSpec, frozen=True, kw_only=True, omit_defaults=True, tag="encoder_only"):
    """An encoder layer: takes part in planning, needs no cache."""


class MambaSpec(LayerSpec, frozen=True, kw_only=True, omit_defaults=True, tag="mamba"):
    """Recurrent state: ``shapes`` and ``dtypes`` of its tensors; one page holds one whole state."""

    shapes: Annotated[
        tuple[Annotated[tuple[Count, ...], Meta(min_length=1, max_length=8)], ...], Meta(min_length=1, max_length=8)
    ]
    dtypes: Annotated[tuple[DType, ...], Meta(min_length=1, max_length=8)]
    page_size_padded: Bytes | None = None
    mamba_type: Text = "MAMBA2"
    mamba_cache_mode: Literal["none", "align", "all"] = "none"
    num_speculative_blocks: Natural = 0
    num_prefill_checkpoint_blocks: Natural = 0
    prefill_checkpoint_alignment: Tokens | None = None
    tp_replicated: bool = False


Spec = (
    FullSpec | MlaSpec | HiddenStateSpec | RSwaSpec | SinkSpec | ChunkedLocalSpec | SlidingWindowSpec
    | SlidingWindowMlaSpec | CircularBufferSpec | CrossSpec | EncoderOnlySpec | MambaSpec
)  # fmt: skip
"""Every kind that vLLM 0.32 and 0.33 know."""

SPEC_CLASSES: dict[str, type[LayerSpec]] = {str(cls.__struct_config__.tag): cls for cls in Spec.__args__}


def is_latent(spec: LayerSpec) -> bool:
    """Whether a spec stores latent vectors (no value half): MLA, hidden state, windowed MLA."""
    return isinstance(spec, MlaSpec | SlidingWindowMlaSpec)


def kind_of(spec: LayerSpec) -> str:
    """The kind, as written in a case file."""
    return str(type(spec).__struct_config__.tag)


def mode_of(spec: LayerSpec) -> Mode:
    """How DCP treats this cache: ``sharded``, ``replicated``, or ``recurrent`` (Mamba state, never split)."""
    if not isinstance(spec, AttentionSpec):
        return "recurrent"
    return "replicated" if spec.replicated else "sharded"
