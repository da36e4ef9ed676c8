"""Where pages lie: bytes per block, strides and offsets by the rules, and interval arithmetic over any plan.

One pool per worker; page of layer index l, block b starts at ``offset + l·layer_stride + b·block_stride`` bytes.
All groups lie over the same bytes, because a block id belongs to one group at a time. Source: VLLM.md 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from oracles.case import AttentionSpec, LayerSpec, MlaSpec, SlidingWindowMlaSpec
from oracles.geometry import page_bytes, round_up, stride_alignment
from oracles.plan import Placement, Record

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
    return structs.replace(spec, alignment=None)


def check_layout(layout: str, groups: Sequence[GroupSpecs], rules: RuleSet) -> None:
    """Raises LayoutError when ``layout`` cannot hold the pages of one worker.

    Pages of several sizes lie side by side: each must be one run of bytes, and with several groups they must
    repeat with every block. Where an alignment makes strides differ, groups must step through the same bytes at the
    same pace, or they meet in different blocks. A page of several runs has no place for padding.
    """
    specs = {spec for group in groups for _, spec in group}
    if len({page_bytes(spec) for spec in specs}) > 1:
        if layout not in BLOCK_COMPACT:
            raise LayoutError(f"{layout} cannot express pages of several sizes")
        if len(groups) > 1 and layout not in BLOCK_OUTERMOST:
            raise LayoutError(f"{layout} cannot express pages of several sizes in several groups")
    overlaid = layout not in BLOCK_OUTERMOST and len(groups) > 1 and rules.aligns_strides == "every"
    if overlaid and not step_together(groups):
        raise LayoutError(f"{layout} cannot express strides of several sizes in several groups")
    if layout not in BLOCK_COMPACT and any(is_padded(spec) and heads_of(spec) > 1 for spec in specs):
        raise LayoutError(f"{layout} cannot pad pages of several heads")


def step_together(groups: Sequence[GroupSpecs]) -> bool:
    """Whether the layers of all groups, in the order of their records, have equal strides as far as they lie over each
    other.
    """
    strides: list[list[int]] = []
    for group in groups:
        counts: dict[LayerSpec, int] = {}
        for _, spec in group:
            counts[spec] = counts.get(spec, 0) + 1
        strides.append([aligned_page(spec) for spec, count in counts.items() for _ in range(count)])
    widest = max(strides, key=len)
    return all(one == other for each in strides for one, other in zip(each, widest, strict=False))


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


def expected_records(layout: str, groups: Sequence[GroupSpecs], num_blocks: int, rules: RuleSet) -> tuple[Record, ...]:
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


# Interval arithmetic over what a planner placed. Nothing is enumerated over blocks: a run of bytes and all its
# repetitions are three numbers.


class Run(Struct, frozen=True):
    """Bytes that repeat with every block: block b takes [start + b·stride, start + b·stride + size).

    A page is one run in a block-compact layout, one for each head in the others.
    """

    start: int
    stride: int
    size: int

    def end(self, blocks: int) -> int:
        """One past the last byte over ``blocks`` blocks."""
        return self.start + (blocks - 1) * self.stride + self.size


class Page(Struct, frozen=True):
    """Where one layer lies in a pool: its group, its planned spec and its runs."""

    layer: str
    group: int
    spec: LayerSpec
    runs: tuple[Run, ...]


def record_bases(placement: Placement) -> tuple[int, ...]:
    """Where the bytes of each record begin, one base per record.

    Records of one pool all begin at 0. Tensors of their own (0.26 to 0.28) are taken to lie one after another.
    """
    bases, end = [], 0
    for record in placement.records:
        bases.append(end)
        end += record.size if is_own_tensor(record) else 0
    return tuple(bases)


def is_own_tensor(record: Record) -> bool:
    """Whether a record states a tensor of its own, in which blocks lie a page apart, and not a part of one pool."""
    return record.aliased and not record.block_stride


def placed_pages(layout: str, placement: Placement, planned: Mapping[str, tuple[int, LayerSpec]]) -> list[Page]:
    """The pages of one pool, of layers that ``planned`` (group index and spec by layer) knows."""
    pages = []
    for base, record in zip(record_bases(placement), placement.records, strict=True):
        for at, name in enumerate(record.layers):
            if name not in planned:
                continue
            group, spec = planned[name]
            start = base + record.offset + (0 if record.aliased else at * record.layer_stride)
            heads = 1 if layout in BLOCK_COMPACT or record.aliased else heads_of(spec)
            strip = page_bytes(spec) // heads
            # Block-outermost: all layers' strips of a head lie together; else all blocks' do.
            # The record's own strides, as the worker's views step by them; the same in a sound plan.
            outer = layout in BLOCK_OUTERMOST
            gap = record.layer_stride * len(record.layers) if outer else record.block_stride * placement.num_blocks
            stride = strip if is_own_tensor(record) else record.block_stride
            runs = tuple(Run(start + head * gap, stride, strip) for head in range(heads))
            pages.append(Page(layer=name, group=group, spec=spec, runs=runs))
    return pages


def first_overlap(runs: Sequence[tuple[int, Run]], blocks: int, *, across: bool) -> tuple[int, int] | None:
    """Two owners whose bytes meet, or None. ``runs`` are (owner, run) pairs.

    ``across`` False: any two runs, in any blocks (one owner's own blocks included). True: only runs of different
    owners in *different* blocks, because the same block id never belongs to two groups.
    """
    for cluster in _clusters(runs, blocks):
        found = _overlap_in(cluster, blocks, across=across)
        if found is not None:
            return found
    return None


def _clusters(runs: Sequence[tuple[int, Run]], blocks: int) -> Iterator[list[tuple[int, Run]]]:
    """Runs whose whole extents meet; runs in different clusters share no byte."""
    cluster: list[tuple[int, Run]] = []
    end = 0
    for owner, run in sorted(runs, key=lambda pair: pair[1].start):
        if cluster and run.start >= end:
            yield cluster
            cluster, end = [], 0
        cluster.append((owner, run))
        end = max(end, run.end(blocks))
    if cluster:
        yield cluster


def _overlap_in(cluster: list[tuple[int, Run]], blocks: int, *, across: bool) -> tuple[int, int] | None:
    if _repeats_as_cells(cluster):
        if across:
            return None  # every run stays in its block's cell, so different blocks never meet
        return _residues_meet(cluster)
    distinct = list(dict.fromkeys(cluster))
    if across and len({owner for owner, _ in distinct}) < 2:
        return None  # one owner's own blocks are looked at when not across
    if across:
        if len({run for _, run in distinct}) == 1:
            run = distinct[0][1]
            return None if blocks < 2 or run.size <= run.stride else (distinct[0][0], distinct[-1][0])
    else:
        for owner, run in distinct:
            if blocks > 1 and run.size > run.stride:
                return owner, owner
        if len(distinct) < len(cluster):
            twice = next(pair for pair in cluster if cluster.count(pair) > 1)
            return twice[0], twice[0]
    if len({run.stride for _, run in distinct}) == 1 and distinct[0][1].stride > 0:
        # What overhangs a cell meets the first runs of the next block, the farthest ones by start.
        distinct.sort(key=lambda pair: pair[1].start % pair[1].stride)
    around = distinct * 2
    reach = min(MAX_NEIGHBOURS, len(distinct) - 1)
    for at, (owner, run) in enumerate(distinct):
        for other, second in around[at + 1 : at + 1 + reach]:
            if (owner != other or not across) and _runs_meet(run, second, blocks, same_block=not across):
                return owner, other
    return None


MAX_NEIGHBOURS = 64
"""Pairs looked at per run where extents interleave without a common cell. No correct plan interleaves like that
except with equal runs, so a bound costs nothing but keeps a broken plan of a thousand layers cheap."""


def _repeats_as_cells(cluster: list[tuple[int, Run]]) -> bool:
    """Whether all runs have one stride and stay within one cell of it: a block-outermost pool."""
    stride = cluster[0][1].stride
    if stride < 1:
        return False
    cell = min(run.start for _, run in cluster) // stride
    return all(
        run.stride == stride and run.start // stride == cell == (run.start + run.size - 1) // stride
        for _, run in cluster
    )


def _residues_meet(cluster: list[tuple[int, Run]]) -> tuple[int, int] | None:
    ordered = sorted(cluster, key=lambda pair: pair[1].start)
    for (owner, run), (other, second) in pairwise(ordered):
        if run.start + run.size > second.start:
            return owner, other
    return None


SAMPLED_BLOCKS = 2048
"""Blocks looked at from either end where two runs have different strides: no correct plan lets such runs share
an extent, and where they do, they meet within a few blocks."""


def _runs_meet(a: Run, b: Run, blocks: int, *, same_block: bool) -> bool:
    """Whether a block of ``a`` meets a block of ``b``; the same block counts when ``same_block``."""
    if a.stride == b.stride and a.stride > 0:
        # Block i of a meets block j of b when -b.size < a.start - b.start + (i - j)·stride < a.size … so the
        # difference i - j lies in an open interval.
        gap = b.start - a.start
        low = (gap - a.size) // a.stride + 1
        high = -((-(gap + b.size)) // a.stride) - 1
        low, high = max(low, 1 - blocks), min(high, blocks - 1)
        return low <= high and (same_block or (low, high) != (0, 0))
    count = min(blocks, SAMPLED_BLOCKS)
    ids = np.unique(np.concatenate([np.arange(count), np.arange(blocks - count, blocks)])).astype(np.int64)
    starts = a.start + ids * a.stride
    if b.stride < 1:
        return bool(np.any((starts < b.start + b.size) & (starts + a.size > b.start)))
    first = np.maximum((starts - b.start - b.size) // b.stride + 1, 0)
    last = np.minimum(-((-(starts + a.size - b.start)) // b.stride) - 1, blocks - 1)
    meets = first <= last
    if not same_block:
        meets &= ~((first == ids) & (last == ids))
    return bool(np.any(meets))
