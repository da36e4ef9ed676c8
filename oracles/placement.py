"""Where pages lie: bytes per block, strides and offsets by the rules, and interval arithmetic over any plan.

One pool per worker; page of layer index l, block b starts at ``offset + l·layer_stride + b·block_stride`` bytes.
All groups lie over the same bytes, because a block id belongs to one group at a time. Source: VLLM.md 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oracles.case import AttentionSpec, LayerSpec, MlaSpec, SlidingWindowMlaSpec
from oracles.geometry import page_bytes, round_up, stride_alignment
from oracles.plan import Record

if TYPE_CHECKING:
    from oracles.reference.rules import RuleSet

BLOCK_OUTERMOST = frozenset({"BLHNC", "BLNHC", "BHLNC"})
BLOCK_COMPACT = frozenset({"LBHNC", "LBNHC", "BLHNC", "BLNHC"})
"""Layouts in which a page is one run of bytes; in the others each head of a page is a run of its own."""

GroupSpecs = Sequence[tuple[str, LayerSpec]]
"""The layers of one group that lie on one worker, each with its spec."""


class LayoutError(ValueError):
    """A layout that cannot express these pages; the message says why."""


def heads_of(spec: LayerSpec) -> int:
    """Head slots of a page, the H of a layout; a recurrent state has one."""
    if not isinstance(spec, AttentionSpec):
        return 1
    return spec.num_kv_heads if spec.num_head_slots is None else spec.num_head_slots


def is_padded(spec: LayerSpec) -> bool:
    """Whether a padding is stated, be it by number or by alignment."""
    if getattr(spec, "page_size_padded", None) is not None:
        return True
    aligned = isinstance(spec, MlaSpec | SlidingWindowMlaSpec) and spec.alignment is not None
    return aligned and page_bytes(spec) != page_bytes(_unaligned(spec))


def _unaligned(spec: LayerSpec) -> LayerSpec:
    from msgspec import structs

    return structs.replace(spec, alignment=None)


def check_layout(layout: str, groups: Sequence[GroupSpecs]) -> None:
    """Raises LayoutError when ``layout`` cannot hold the pages of one worker.

    Pages of several sizes lie side by side: each must be one run of bytes, and with several groups they must
    repeat with every block. A page of several runs has no place for padding.
    """
    specs = {spec for group in groups for _, spec in group}
    if len({page_bytes(spec) for spec in specs}) > 1:
        if layout not in BLOCK_COMPACT:
            raise LayoutError(f"{layout} cannot express pages of several sizes")
        if len(groups) > 1 and layout not in BLOCK_OUTERMOST:
            raise LayoutError(f"{layout} cannot express pages of several sizes in several groups")
    if layout not in BLOCK_COMPACT and any(is_padded(spec) and heads_of(spec) > 1 for spec in specs):
        raise LayoutError(f"{layout} cannot pad pages of several heads")


def bytes_per_block(layout: str, groups: Sequence[GroupSpecs], rules: RuleSet) -> int:
    """Bytes that one block id takes in this worker's pool: those of its widest group."""
    if layout not in BLOCK_OUTERMOST and rules.aligns_strides == "every":
        return max(sum(aligned_page(spec) for _, spec in group) for group in groups)
    widest = max(sum(page_bytes(spec) for _, spec in group) for group in groups)
    if rules.aligns_strides == "no":
        return widest
    return round_up(widest, math.lcm(*(stride_alignment(spec) for group in groups for _, spec in group)))


def aligned_page(spec: LayerSpec) -> int:
    """A page raised to its stride alignment, in bytes."""
    return round_up(page_bytes(spec), stride_alignment(spec))


def expected_records(
    layout: str, groups: Sequence[GroupSpecs], num_blocks: int, rules: RuleSet
) -> tuple[Record, ...]:
    """The records of one worker: in each group a run of layers for each distinct spec.

    Raises:
        LayoutError: the layout has no room for a stride alignment.
    """
    per_block = bytes_per_block(layout, groups, rules)
    records = []
    for group in groups:
        runs: dict[LayerSpec, list[str]] = {}
        for name, spec in group:
            runs.setdefault(spec, []).append(name)
        offset = 0
        for spec, names in runs.items():
            page = page_bytes(spec)
            strip = page // heads_of(spec)
            if layout in BLOCK_OUTERMOST:
                block_stride, layer_stride = per_block, page if layout in BLOCK_COMPACT else strip
                room = page
            else:
                block_stride = page if layout in BLOCK_COMPACT else strip
                if rules.aligns_strides == "every" and aligned_page(spec) != page:
                    if layout not in BLOCK_COMPACT:
                        raise LayoutError(f"{layout} cannot align pages")
                    block_stride = aligned_page(spec)
                page = block_stride if layout in BLOCK_COMPACT else page
                layer_stride = room = page * num_blocks
            records.append(Record(
                size=per_block * num_blocks, layers=tuple(names), offset=offset,
                layer_stride=layer_stride, block_stride=block_stride,
            ))  # fmt: skip
            offset += room * len(names)
    return tuple(records)
