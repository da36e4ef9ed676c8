"""Paints a pool at its *marks* only: the addresses where a strip of a page begins or ends.

Two strips that share a byte share the first byte of one of them, so what happens at the marks is what happens at all
bytes. For pools whose pages have no common unit, where painting every byte would take gigabytes: one element stands
for one mark. Every block is painted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.replay.device import Check
from fuzz.replay.memory.paint import Painted, TooLarge
from fuzz.replay.memory.pools import Page, Pool

MAX_STRIPS = 2**20
"""Strips of all pages of all blocks; a million are painted in about a second."""

MAX_WRITES = 2**26
"""Marks inside strips, counted for each strip: only a plan of which nearly everything overlaps has so many."""

Numbers = NDArray[np.int64]


def paint_marks(pool: Pool) -> Painted:
    """Paints every strip of every page at each mark in it.

    Raises:
        TooLarge: there are more than ``MAX_STRIPS`` strips or ``MAX_WRITES`` marks in them.
    """
    count = pool.num_blocks * sum(page.heads for page in pool.pages)
    if count > MAX_STRIPS:
        raise TooLarge(f"{count:,} strips; at most {MAX_STRIPS:,} are painted")
    groups: dict[int, list[Page]] = {}
    for page in pool.pages:
        groups.setdefault(page.group, []).append(page)
    strips = {group: _strips(pages, pool.num_blocks) for group, pages in groups.items()}
    marks = np.unique(
        np.concatenate([part for starts, sizes, _ in strips.values() for part in (starts, starts + sizes - 1)])
    )
    found: dict[Check, str] = {}
    if marks[0] < 0 or marks[-1] >= pool.pool_bytes:
        found["P2"] = "pages were written outside the pool"
    low = np.zeros(len(marks), np.int64)
    high = low.copy()
    for group, (starts, sizes, ids) in strips.items():
        places, owners = _writes(marks, starts, sizes)
        buffer = np.zeros(len(marks), np.int64)
        buffer[places] = owners + 1
        if np.count_nonzero(buffer) < len(places):
            loser = owners[buffer[places] != owners + 1]
            found.setdefault(
                "P3", f"{_name(groups[group], pool.num_blocks, int(loser[0]))} lost bytes to its own group"
            )
        least, most = np.full(len(marks), np.iinfo(np.int64).max), np.zeros(len(marks), np.int64)
        np.minimum.at(least, places, ids[owners])
        np.maximum.at(most, places, ids[owners])
        least[most == 0] = 0
        clash = ((low != least) | (high != most) | (low != high)) & (low != 0) & (least != 0)
        if clash.any():
            at = int(np.argmax(clash))
            found.setdefault(
                "P4",
                f"byte {int(marks[at]):,} belongs to block {int(least[at]) - 1} of group {group} and to block "
                f"{int(low[at]) - 1} of another group",
            )
        untouched = low == 0
        np.copyto(low, least, where=untouched)
        np.copyto(high, most, where=untouched)
    return Painted(found=found, cells=len(marks), cell_bytes=1)


def _strips(pages: list[Page], blocks: int) -> tuple[Numbers, Numbers, Numbers]:
    """First byte, bytes and block id + 1 of every strip."""
    ids = np.arange(blocks, dtype=np.int64)
    starts, sizes, owners = [], [], []
    for page in pages:
        heads = np.arange(page.heads, dtype=np.int64) * page.head_stride
        grid = page.start + ids[:, None] * page.block_stride + heads[None, :]
        starts.append(grid.ravel())
        sizes.append(np.full(grid.size, page.strip, np.int64))
        owners.append(np.repeat(ids + 1, page.heads))
    return np.concatenate(starts), np.concatenate(sizes), np.concatenate(owners)


def _writes(marks: Numbers, starts: Numbers, sizes: Numbers) -> tuple[Any, Any]:
    """Every (mark, strip) of which the strip holds the mark, as two columns of indices."""
    first = np.searchsorted(marks, starts)
    counts = np.searchsorted(marks, starts + sizes) - first
    total = int(counts.sum())
    if total > MAX_WRITES:
        raise TooLarge(f"{total:,} marks in strips; at most {MAX_WRITES:,} are painted")
    owners = np.repeat(np.arange(len(starts)), counts)
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(total), owners


def _name(pages: list[Page], blocks: int, strip: int) -> str:
    for page in pages:
        strip -= blocks * page.heads
        if strip < 0:
            return f"a page of {page.layer}"
    raise IndexError(strip)
