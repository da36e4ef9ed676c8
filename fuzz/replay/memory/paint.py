"""Paints a small pool exactly, and tells what was lost.

The painter knows no interval arithmetic. Each group in turn writes its block ids into every cell of every page, through
strided arrays over one buffer with guard bands. Fewer cells changed than were written: pages of the group share some.
A guard changed: pages leave the pool. A cell holds different ids after two groups' turns: one group's write would reach
another's live page.

A *cell* stands for as many bytes as divide every start, stride and size of the pool: bytes of one cell are always
written together, so one element for each loses nothing and keeps a pool of gigabytes small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from fuzz.replay.device import Check
from fuzz.replay.memory.pools import Page, Pool

MAX_CELLS = 2**20
"""Beyond it no buffer is made here (``marks`` takes such pools): a million cells a group are painted in about 1 ms."""

MOST_CELLS = 2**26
"""Guards included: what a plan that leaves its pool may take at most."""

Cells = NDArray[Any]


class TooLarge(Exception):
    """The pool has more cells than are painted here."""


class Painted(Struct, frozen=True, kw_only=True):
    """What painting found: a sentence for each failing check. ``cells`` were painted, of ``cell_bytes`` bytes each."""

    found: dict[Check, str]
    cells: int
    cell_bytes: int


class _Canvas:
    """The buffer of one pool in cells: the pool between guards wide enough for every page."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.blocks = pool.num_blocks
        self.cell = _cell_bytes(pool)
        self.size = pool.pool_bytes // self.cell
        room = max((page.heads * page.strip for page in pool.pages), default=0) // self.cell
        ends = [_extent(page, self.blocks) for page in pool.pages]
        self.front = max(room, -min((low for low, _ in ends), default=0) // self.cell)
        back = max(room, max((high for _, high in ends), default=0) // self.cell - self.size)
        self.cells = self.front + self.size + back
        if self.cells > MOST_CELLS:
            raise TooLarge(f"{self.cells:,} cells of {self.cell} bytes; at most {MOST_CELLS:,} are painted")
        self.kind = np.uint8 if self.blocks < 2**8 else np.uint16 if self.blocks < 2**16 else np.uint32
        self.ids: Cells = np.arange(1, self.blocks + 1, dtype=self.kind)[:, None, None]

    def blank(self) -> Cells:
        """A buffer that nobody has written to."""
        return np.zeros(self.cells, self.kind)

    def view(self, buffer: Cells, page: Page) -> Cells:
        """All blocks of a layer: (block, head, cell). numpy refuses a view that leaves the buffer."""
        unit, wide = self.cell, buffer.itemsize
        return np.ndarray(
            (self.blocks, page.heads, page.strip // unit), buffer.dtype, buffer,
            (self.front + page.start // unit) * wide,
            (page.block_stride // unit * wide, page.head_stride // unit * wide, wide),
        )  # fmt: skip

    def written(self, pages: Sequence[Page]) -> int:
        """Cells that the pages of all blocks take when none is shared."""
        return self.blocks * sum(page.heads * page.strip for page in pages) // self.cell

    def leaves_pool(self, buffer: Cells) -> bool:
        """Whether a guard was written to."""
        return bool(buffer[: self.front].any() or buffer[self.front + self.size :].any())


def _cell_bytes(pool: Pool) -> int:
    numbers = [pool.pool_bytes]
    for page in pool.pages:
        numbers += (page.start, page.strip)
        if pool.num_blocks > 1:
            numbers.append(page.block_stride)
        if page.heads > 1:
            numbers.append(page.head_stride)
    return math.gcd(*numbers) or 1


def _extent(page: Page, blocks: int) -> tuple[int, int]:
    """First byte of a layer's pages, and one past the last."""
    steps = ((blocks - 1) * page.block_stride, (page.heads - 1) * page.head_stride)
    low = page.start + sum(min(0, step) for step in steps)
    return low, page.start + sum(max(0, step) for step in steps) + page.strip


def cells_of(pool: Pool) -> int:
    """Cells that painting this pool takes, guards left out."""
    return pool.pool_bytes // _cell_bytes(pool)


def paint(pool: Pool) -> Painted:
    """Paints every cell of every page of every group and block.

    Raises:
        TooLarge: the pool and what its pages take outside it are more than ``MOST_CELLS`` cells.
    """
    if pool.num_blocks < 1 or not pool.pages:
        return Painted(found={}, cells=0, cell_bytes=1)
    canvas = _Canvas(pool)
    groups: dict[int, list[Page]] = {}
    for page in pool.pages:
        groups.setdefault(page.group, []).append(page)
    found: dict[Check, str] = {}
    low, high = canvas.blank(), canvas.blank()
    for at, (group, pages) in enumerate(groups.items()):
        buffer = canvas.blank()
        for page in pages:
            canvas.view(buffer, page)[...] = canvas.ids
        if canvas.leaves_pool(buffer):
            found.setdefault("P2", f"pages of group {group} were written outside the pool")
        least, most = buffer, buffer
        if (kept := int(np.count_nonzero(buffer))) < (written := canvas.written(pages)):
            least, most = _range_of_ids(canvas, pages)
            lost = f"{written - kept:,} of {written:,} cells are shared"
            found.setdefault("P3", f"{_who_meet(canvas, pages)}, in one group, share bytes ({lost})")
        if not at:
            low, high = least.copy(), most.copy()
            continue
        if "P4" not in found:
            clash = low != least
            if "P3" in found:  # else a cell has one id in each group, so that one of two comparisons is enough
                clash |= (high != most) | (low != high)
            clash &= low != 0
            clash &= least != 0
            if clash.any():
                cell = int(np.argmax(clash))
                found["P4"] = (
                    f"byte {(cell - canvas.front) * canvas.cell:,} belongs to block {int(least[cell]) - 1} of group "
                    f"{group} and to block {int(low[cell]) - 1} of another group"
                )
        untouched = low == 0
        np.copyto(low, least, where=untouched)
        np.copyto(high, most, where=untouched)
    return Painted(found=found, cells=canvas.cells, cell_bytes=canvas.cell)


def _range_of_ids(canvas: _Canvas, pages: Sequence[Page]) -> tuple[Cells, Cells]:
    """The least and the greatest block id written to each cell, where pages of one group share some (0: none)."""
    places = np.arange(canvas.cells, dtype=np.int64)
    top = np.iinfo(canvas.kind).max
    least = np.full(canvas.cells, top, canvas.kind)
    most = canvas.blank()
    for page in pages:
        shape = (canvas.blocks, page.heads, page.strip // canvas.cell)
        ids = np.broadcast_to(canvas.ids, shape).ravel()
        at = canvas.view(places, page).ravel()
        np.minimum.at(least, at, ids)
        np.maximum.at(most, at, ids)
    least[most == 0] = 0
    return least, most


def _who_meet(canvas: _Canvas, pages: Sequence[Page]) -> str:
    """The first two layers of a group that share cells, or one that shares its own."""
    owner = np.zeros(canvas.cells, np.int32)
    for at, page in enumerate(pages):
        seen = canvas.view(owner, page)
        if (earlier := int(seen.max())) > 0:
            return f"pages of {pages[earlier - 1].layer} and {page.layer}"
        seen[...] = at + 1
        if np.count_nonzero(owner == at + 1) < canvas.written([page]):
            return f"pages of {page.layer} in different blocks"
    return "pages"
