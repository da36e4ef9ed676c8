"""A picture of a pool: blocks across, the layers of each group stacked as their bytes lie.

All groups lie over the same bytes, and a block id belongs to one group at a time; so each group has a picture of its
own, all to one scale. Padding is hatched, bytes that no page of the group uses are hatched faintly, and pages that
share a byte with a page that may be alive at the same time are red. Large plans are cut to their first layers and to
their first and last blocks. ``draw`` turns a plan into geometry, ``fuzz.report.svg`` geometry into SVG.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from oracles.case import Case, Spec, mode_of
from oracles.geometry import content_bytes
from oracles.laws.reading import planned_specs
from oracles.placement import Page, Run, placed_pages
from oracles.plan import Placement, Plan

MAX_BLOCKS = 12
FIRST_BLOCKS, LAST_BLOCKS = 9, 2
"""Columns drawn: all when they fit, else these with a gap between."""

MAX_LAYERS = 40
MAX_GROUPS = 8
MAX_POOLS = 4
"""Rows, groups and pools drawn; each pool's rows are shared out over its groups."""


class Row(Struct, frozen=True, kw_only=True):
    """One layer's pages: of ``page`` bytes each, ``content`` hold something and the rest is padding.

    ``start`` is the layer's first byte in the pool, ``stride`` the bytes from block to block. ``meets`` has for each
    block drawn that shares a byte with another page the layer of that page; ``outside`` the blocks that lie past the
    pool, in part at least.
    """

    layer: str
    mode: str
    page: int
    content: int
    start: int
    stride: int
    meets: dict[int, str] = {}
    outside: frozenset[int] = frozenset()


class Stack(Struct, frozen=True, kw_only=True):
    """One group's rows in the order of their bytes, runs of like rows together; ``left_out`` layers are not drawn."""

    group: int
    kind: str
    runs: tuple[tuple[Row, ...], ...]
    layers: int
    left_out: int
    block_bytes: int

    @property
    def unused(self) -> int:
        """Bytes of a block that no page of this group takes, when all its layers are drawn."""
        return max(0, self.block_bytes - sum(row.page for run in self.runs for row in run)) if not self.left_out else 0


class Pool(Struct, frozen=True, kw_only=True):
    """One worker's pool, or that of several workers with the same one. ``foreign`` layers are placed here though no
    such worker has them; they are not drawn.
    """

    workers: tuple[int, ...]
    num_blocks: int
    size: int
    blocks: tuple[int, ...]
    stacks: tuple[Stack, ...]
    groups_left_out: int
    foreign: tuple[str, ...] = ()

    @property
    def overlaps(self) -> tuple[tuple[str, str], ...]:
        """Pairs of layers whose pages meet, as far as drawn; a layer may meet itself in another block."""
        pairs = {
            tuple(sorted((row.layer, other)))
            for stack in self.stacks for run in stack.runs for row in run for other in row.meets.values()
        }  # fmt: skip
        return tuple(sorted((a, b) for a, b in pairs))


class Drawing(Struct, frozen=True, kw_only=True):
    """The pools of a plan; ``pools_left_out`` counts those not drawn."""

    pools: tuple[Pool, ...]
    pools_left_out: int = 0


def draw(case: Case, plan: Plan) -> Drawing | None:
    """The geometry of a plan, or None when it places nothing. Linear in layers."""
    if plan.groups is None or not plan.placement:
        return None
    planned = planned_specs(plan)
    own = {layer.name: mode_of(case.spec_of(layer)) for layer in case.layers}
    stages: dict[int, set[str]] = defaultdict(set)
    for layer in case.layers:
        stages[layer.stage].add(layer.name)
    alike: dict[tuple[int, Placement], list[int]] = defaultdict(list)
    for number, (worker, placement) in enumerate(zip(case.settings.workers, plan.placement, strict=False)):
        alike[worker.stage, placement].append(number)
    distinct = list(alike.items())
    kinds = [group.kind for group in plan.groups]
    pools = tuple(
        _pool(placement, tuple(workers), case.settings.layout, planned, own, stages[stage], kinds)
        for (stage, placement), workers in distinct[:MAX_POOLS]
    )
    return Drawing(pools=pools, pools_left_out=max(0, len(distinct) - MAX_POOLS))


def _pool(
    placement: Placement, workers: tuple[int, ...], layout: str, planned: dict[str, tuple[int, Spec]],
    own: Mapping[str, str], mine: set[str], kinds: Sequence[str],
) -> Pool:  # fmt: skip
    size = max((record.size for record in placement.records), default=0)
    blocks = shown_blocks(placement.num_blocks)
    by_group: dict[int, list[Page]] = defaultdict(list)
    for page in placed_pages(layout, placement, {name: planned[name] for name in mine if name in planned}):
        by_group[page.group].append(page)
    groups = sorted(by_group)
    share = MAX_LAYERS // max(1, min(len(groups), MAX_GROUPS))
    drawn = {group: _chosen(by_group[group], share) for group in groups[:MAX_GROUPS]}
    meets = _overlaps([page for pages in drawn.values() for page in pages], blocks)
    per_block = size // placement.num_blocks if placement.num_blocks > 0 else 0
    stacks = tuple(
        Stack(
            group=group, kind=kinds[group], layers=len(by_group[group]),
            left_out=len(by_group[group]) - len(pages), block_bytes=per_block,
            runs=_runs([_row(page, blocks, size, own, meets) for page in pages], len(pages) < len(by_group[group])),
        )
        for group, pages in drawn.items()
    )  # fmt: skip
    return Pool(
        workers=workers, num_blocks=placement.num_blocks, size=size, blocks=blocks, stacks=stacks,
        groups_left_out=max(0, len(groups) - MAX_GROUPS),
        foreign=tuple(name for record in placement.records for name in record.layers if name not in mine),
    )  # fmt: skip


def shown_blocks(count: int) -> tuple[int, ...]:
    """The block ids that are drawn."""
    if count <= MAX_BLOCKS:
        return tuple(range(max(count, 0)))
    return (*range(FIRST_BLOCKS), *range(count - LAST_BLOCKS, count))


def _chosen(pages: list[Page], limit: int) -> list[Page]:
    """The first pages and the last one, in the order of their bytes."""
    ordered = sorted(pages, key=lambda page: page.runs[0].start)
    return ordered if len(ordered) <= limit else [*ordered[: limit - 1], ordered[-1]]


def _row(
    page: Page, blocks: Sequence[int], size: int, own: Mapping[str, str], meets: dict[tuple[str, int], str]
) -> Row:
    first = page.runs[0]
    bytes_ = sum(run.size for run in page.runs)
    return Row(
        layer=page.layer, mode=own.get(page.layer, mode_of(page.spec)), page=bytes_,
        content=min(bytes_, content_bytes(page.spec)), start=first.start, stride=first.stride,
        meets={block: meets[page.layer, block] for block in blocks if (page.layer, block) in meets},
        outside=frozenset(
            block for block in blocks
            if any(run.start + block * run.stride + run.size > size or run.start < 0 for run in page.runs)
        ),
    )  # fmt: skip


def _runs(rows: list[Row], is_cut: bool) -> tuple[tuple[Row, ...], ...]:
    """Neighbours that look the same, together; the row after a cut by itself."""
    before, after = (rows[:-1], rows[-1:]) if is_cut else (rows, [])
    alike = groupby(before, key=lambda row: (row.mode, row.page, row.content, row.stride))
    return (*(tuple(run) for _, run in alike), *((row,) for row in after))


class _Piece(Struct, frozen=True):
    """Bytes of one page: from ``start`` until ``end``."""

    start: int
    end: int
    layer: str
    group: int
    block: int


def _overlaps(pages: Sequence[Page], blocks: Sequence[int]) -> dict[tuple[str, int], str]:
    """By layer and block, a layer with which that page shares a byte though both may be alive.

    Pages of one block id and different groups never are. Among the pieces of one group and block the one that
    reaches furthest is held: a piece that starts before its end meets it, and every meeting shows up that way.
    """
    found: dict[tuple[str, int], str] = {}
    furthest: dict[tuple[int, int], _Piece] = {}
    for piece in sorted(_pieces(pages, blocks), key=lambda p: (p.start, p.end)):
        for key in [key for key, held in furthest.items() if held.end <= piece.start]:
            del furthest[key]
        for (group, block), held in furthest.items():
            if block == piece.block and (group != piece.group or held.layer == piece.layer):
                continue
            found.setdefault((piece.layer, piece.block), held.layer)
            found.setdefault((held.layer, held.block), piece.layer)
        mine = furthest.get((piece.group, piece.block))
        if mine is None or mine.end < piece.end:
            furthest[piece.group, piece.block] = piece
    return found


def _pieces(pages: Sequence[Page], blocks: Sequence[int]) -> Iterator[_Piece]:
    for page in pages:
        for block in blocks:
            for start, end in _joined(page.runs, block):
                yield _Piece(start, end, page.layer, page.group, block)


def _joined(runs: Sequence[Run], block: int) -> Iterator[tuple[int, int]]:
    """The bytes of one page; runs that touch are one."""
    begin, end = None, 0
    for run in runs:
        start = run.start + block * run.stride
        if begin is not None and start != end:
            yield begin, end
            begin = None
        begin, end = start if begin is None else begin, start + run.size
    if begin is not None:
        yield begin, end
