"""Pages and spans: the arithmetic of one layer spec.

A *page* is what one layer stores for one block, in bytes; its *content* is what the tokens need, the rest is
padding. A *span* is the number of tokens of the sequence that one block covers: under DCP a sharded block
covers ``block_size × dcp`` tokens, a replicated one and a recurrent one ``block_size``.

Source of the rules: VLLM.md 4 and 5.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

from msgspec import structs

from oracles.specs import (
    AttentionSpec,
    CaseError,
    ChunkedLocalSpec,
    CircularBufferSpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    MultipleOf,
    RSwaSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    is_latent,
)

SpecT = TypeVar("SpecT", bound=LayerSpec)

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


def round_up(value: int, unit: int) -> int:
    """Smallest multiple of ``unit`` not below ``value``."""
    return ceil_div(value, unit) * unit


def tokens_per_state(spec: AttentionSpec) -> Fraction:
    """Tokens that one stored state stands for."""
    return Fraction(spec.tokens_per_state)


def states_per_block(spec: AttentionSpec) -> int:
    """States stored for one block of tokens."""
    if isinstance(spec.tokens_per_state, int):  # nearly always, and a Fraction costs more than all the rest
        return spec.block_size // spec.tokens_per_state
    return int(spec.block_size // tokens_per_state(spec))


def state_bytes(spec: AttentionSpec) -> int:
    """Bytes of one state in one head slot."""
    if spec.state_content_bytes is not None:
        return spec.state_content_bytes
    value = spec.head_size if spec.head_size_v is None else spec.head_size_v
    return (spec.head_size + value) * DTYPE_BYTES[spec.dtype]


def content_bytes(spec: LayerSpec) -> int:
    """Bytes of a page that hold something."""
    if isinstance(spec, MambaSpec):
        return sum(math.prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True))
    assert isinstance(spec, AttentionSpec)
    heads = spec.num_kv_heads if spec.num_head_slots is None else spec.num_head_slots
    return heads * states_per_block(spec) * state_bytes(spec)


def page_bytes(spec: LayerSpec) -> int:
    """Bytes of one page: the content, raised to the stated padding or alignment."""
    content = content_bytes(spec)
    if isinstance(spec, MlaSpec | SlidingWindowMlaSpec) and spec.alignment is not None:
        aligned = round_up(content, spec.alignment)
        if aligned != content:
            return aligned
    padded: int | None = getattr(spec, "page_size_padded", None)
    return content if padded is None else padded


def stride_alignment(spec: LayerSpec) -> int:
    """Bytes that the distance between two blocks must be a multiple of (1: no demand)."""
    wanted = spec.block_stride_alignment
    if wanted is None:
        return 1
    if not isinstance(wanted, MultipleOf):
        return wanted
    kernel_block = math.gcd(wanted.multiple_of, spec.block_size)
    if kernel_block == spec.block_size:
        return 1
    # A kernel block that holds no whole state has no bytes, and asks for nothing.
    return page_bytes(with_block_size(spec, kernel_block)) or 1


def with_block_size(spec: SpecT, block_size: int) -> SpecT:
    """The same spec with another block size, in tokens."""
    return structs.replace(spec, block_size=block_size)


def is_split_by_dcp(spec: LayerSpec) -> bool:
    """Whether DCP ranks share out this cache's token positions."""
    return isinstance(spec, AttentionSpec) and not spec.replicated


def span_tokens(spec: LayerSpec, dcp: int) -> int:
    """Tokens of the sequence that one block covers at DCP size ``dcp``."""
    return spec.block_size * (dcp if is_split_by_dcp(spec) else 1)


def is_prefix_cacheable(spec: LayerSpec) -> bool:
    """Whether the group of this layer takes part in prefix caching."""
    if isinstance(spec, SlidingWindowMlaSpec):
        return not spec.bounded_replay
    return not isinstance(spec, CircularBufferSpec)


def token_slots(spec: LayerSpec) -> tuple[object, ...]:
    """What decides which tokens a layer keeps: two layers of one group must agree on it (law G3)."""
    if isinstance(spec, FullSpec):
        return ("whole sequence",)
    if isinstance(spec, SlidingWindowMlaSpec) and spec.bounded_replay:
        return ("replayed window", spec.sliding_window)
    if isinstance(spec, SlidingWindowSpec):
        return ("window", spec.sliding_window)
    if isinstance(spec, ChunkedLocalSpec):
        return ("chunk", spec.attention_chunk_size)
    if isinstance(spec, MambaSpec):
        return ("state", spec.num_speculative_blocks, spec.num_prefill_checkpoint_blocks, spec.tp_replicated)
    return (type(spec).__name__,)


def check_spec(spec: LayerSpec) -> None:
    """Raises CaseError when no layer can have this spec; the message starts with the field."""
    if isinstance(spec, MambaSpec):
        if len(spec.shapes) != len(spec.dtypes):
            raise CaseError(f"dtypes: {len(spec.dtypes)} for {len(spec.shapes)} shapes; give one for each shape")
    elif isinstance(spec, AttentionSpec):
        if is_latent(spec) and spec.head_size_v:
            raise CaseError(f"head_size_v: {spec.head_size_v}, but a latent cache has no value half; drop it")
        if states_per_block(spec) < 1:
            raise CaseError(
                f"tokens_per_state: {spec.tokens_per_state} leaves no state in a block of {spec.block_size}; "
                "raise block_size or lower it"
            )
        for field in ("kv_quant_mode", "cache_dtype_str", "model_version"):
            text = getattr(spec, field, None)
            if text is not None and not text.isprintable():
                raise CaseError(f"{field}: has control characters; use printable ones")
        if isinstance(spec, FullSpec) and spec.sliding_window and spec.attention_chunk_size:
            raise CaseError("attention_chunk_size: stands beside sliding_window; a layer has one of them")
        if isinstance(spec, RSwaSpec) and spec.rswa_window < 1:
            raise CaseError("rswa_window: must be at least 1 token")
    content = content_bytes(spec)
    if content < 1:
        raise CaseError("head_size: the page would hold no byte; raise head_size or state_content_bytes")
    if content > 2**40:
        raise CaseError(f"block_size: a page of {content:,} bytes is more than a terabyte; lower block_size or shapes")
    padded = getattr(spec, "page_size_padded", None)
    if padded is not None and padded < content:
        raise CaseError(f"page_size_padded: {padded} is below the content of {content} bytes; raise or drop it")
