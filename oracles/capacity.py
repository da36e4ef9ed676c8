"""Sizes and capacity: spans, block-table widths, blocks per request, admission, what may be claimed.

Lengths are in tokens, pools in blocks, memory in bytes. Block 0 of every pool is the null block, which no request
gets: a pool of n blocks serves n - 1. Source of the rules: VLLM.md 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from oracles.case import (
    AttentionSpec,
    ChunkedLocalSpec,
    CircularBufferSpec,
    CrossSpec,
    EncoderOnlySpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    Settings,
    SlidingWindowSpec,
)
from oracles.geometry import ceil_div, is_prefix_cacheable, is_split_by_dcp, span_tokens

if TYPE_CHECKING:
    from oracles.reference.rules import RuleSet


def splits_window(spec: LayerSpec, dcp: int) -> bool:
    """Whether DCP would split a sliding window over ranks, for which no rule exists."""
    return dcp > 1 and isinstance(spec, SlidingWindowSpec) and is_split_by_dcp(spec)


def request_blocks(spec: LayerSpec, settings: Settings, model_len: int, *, keep_all_states: bool = False) -> int:
    """Blocks that one request of ``model_len`` tokens holds at most in the group of ``spec``.

    ``keep_all_states``: Mamba mode ``all`` keeps the state of every block (vLLM to 0.31).
    """
    in_flight = settings.batches_in_flight * settings.batched_tokens
    if isinstance(spec, MambaSpec):
        if settings.mamba_mode == "all" and keep_all_states:
            return ceil_div(model_len, spec.block_size) + spec.num_speculative_blocks
        if settings.mamba_mode == "align":
            return 2 + spec.num_speculative_blocks + spec.num_prefill_checkpoint_blocks
        return 1 + spec.num_speculative_blocks
    if isinstance(spec, FullSpec):
        share = ceil_div(model_len, settings.dcp) if is_split_by_dcp(spec) else model_len
        return ceil_div(share, spec.block_size)
    if isinstance(spec, SlidingWindowSpec):
        kept = spec.sliding_window - 1 + spec.extra_retained_tokens + in_flight
        # One more: a window may begin in the middle of a block.
        return ceil_div(min(kept, model_len), spec.block_size) + 1
    if isinstance(spec, ChunkedLocalSpec):
        return ceil_div(min(spec.attention_chunk_size + in_flight, model_len), spec.block_size)
    if isinstance(spec, CircularBufferSpec):
        return 1
    if isinstance(spec, CrossSpec):
        return ceil_div(settings.encoder_tokens, spec.block_size)
    assert isinstance(spec, EncoderOnlySpec)
    return 0


def table_width(spec: LayerSpec, settings: Settings, model_len: int, *, keep_all_states: bool = False) -> int:
    """Columns of the block table of a request of ``model_len`` tokens, in the group of ``spec``."""
    if isinstance(spec, MambaSpec):
        if settings.mamba_mode == "align":
            # Positions are kept for the whole sequence although few of the states are resident.
            return ceil_div(model_len, spec.block_size) + spec.num_speculative_blocks
        return request_blocks(spec, settings, model_len, keep_all_states=keep_all_states)
    if isinstance(spec, CircularBufferSpec):
        return 1
    return ceil_div(model_len, span_tokens(spec, settings.dcp))


def largest_length(
    groups: Sequence[Sequence[LayerSpec]], settings: Settings, usable: int, *, keep_all_states: bool = False
) -> int:
    """The longest request, up to the model length, that ``usable`` blocks hold; 0 when not even one token."""

    def fits(length: int) -> bool:
        return total_blocks(groups, settings, length, keep_all_states=keep_all_states) <= usable

    low, high = 0, settings.model_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def total_blocks(
    groups: Iterable[Iterable[LayerSpec]], settings: Settings, model_len: int, *, keep_all_states: bool = False
) -> int:
    """Blocks that one request holds in all groups together; a group takes what its neediest member does."""
    return sum(
        max(request_blocks(spec, settings, model_len, keep_all_states=keep_all_states) for spec in set(specs))
        for specs in groups
    )


def caches_prefixes(settings: Settings, specs: Iterable[LayerSpec]) -> bool:
    """Whether prefix caching is on: the engine turns it off beside a layer that attends non-causally."""
    return settings.prefix_caching and not any(isinstance(s, FullSpec) and s.non_causal for s in specs)


class UnitError(ValueError):
    """Block sizes between which no hash unit fits; the message says why."""


def scheduler_block(spans: Sequence[int]) -> int:
    """Tokens that the scheduler handles at once: all groups' blocks end together there."""
    return math.lcm(*spans)


def hash_block(
    firsts: Sequence[LayerSpec], cacheable: Sequence[bool], settings: Settings, rules: RuleSet, *, caching: bool
) -> int:
    """Tokens per prefix hash. ``firsts`` is one spec of each group, which stands for it in the scheduler.

    Raises:
        UnitError: the match unit asked for does not divide every prefix-cacheable span, or boundaries fall
            between the states of a compressed cache.
    """
    spans = [span_tokens(spec, settings.dcp) for spec in firsts]
    whole = scheduler_block(spans)
    unit = settings.prefix_match_unit
    if len(firsts) == 1:
        if rules.checks_single_match_unit and caching and unit not in (None, whole):
            raise UnitError("a single group is matched by whole blocks; the match unit asked for is another")
        return whole
    recurrent = [spec for spec in firsts if isinstance(spec, MambaSpec)]
    configured = min([spec.block_size for spec, taken in zip(firsts, cacheable, strict=True) if taken] or [1])
    if not caching or any(
        spec.mamba_cache_mode != "align" if rules.hashes_by_mode else spec.block_size != configured
        for spec in recurrent
    ):
        return whole
    hashed = [span for span, taken in zip(spans, cacheable, strict=True) if taken] or spans
    unit = math.gcd(*hashed) if unit is None else unit
    if any(span % unit for span in hashed):
        raise UnitError("the match unit does not divide every prefix-cacheable span")
    # Recurrent states may be found at hash boundaries inside their block; then hits are that fine.
    fine = any(s.block_size > unit or (settings.dcp > 1 and s.block_size == unit) for s in recurrent)
    for spec in firsts:
        compresses = isinstance(spec, AttentionSpec) and isinstance(spec.tokens_per_state, int)
        if compresses and is_prefix_cacheable(spec):
            assert isinstance(spec, AttentionSpec) and isinstance(spec.tokens_per_state, int)
            if (unit if fine else whole) % spec.tokens_per_state:
                raise UnitError("prefix boundaries fall between the states of a compressed cache")
    return unit
