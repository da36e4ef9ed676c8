"""A *pool* is what one worker allocates, with where each of its pages lies: plain numbers and names.

It is one line of JSON, so that a machine without vLLM and without kvfuzz can replay it (``fuzz.replay.device``
decodes the same lines by itself). Page of block b, head h of a layer takes ``strip`` bytes from
``start + b·block_stride + h·head_stride``. Units: bytes, blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, structs

from fuzz.case_files import write_whole
from fuzz.replay import device as script
from oracles.case import Case, Layout, MultipleOf, Spec, case_id
from oracles.geometry import content_bytes, page_bytes, stride_alignment, with_block_size
from oracles.laws.reading import own_specs, planned_specs
from oracles.placement import heads_of
from oracles.plan import Placement, Plan, Record


class NotReplayable(Exception):
    """The plan places nothing that could be allocated as one pool; the message says why."""


class Page(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pages of one layer: of every block, ``heads`` strips.

    ``content`` is what the layer itself writes for a block, ``alignment`` what the distance of two blocks must be a
    multiple of.
    """

    layer: str
    group: int
    start: int
    block_stride: int
    heads: int
    head_stride: int
    strip: int
    content: int
    alignment: int


class Pool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One worker's pool.

    ``format`` is the version of a line; ``fuzz.replay.device`` refuses others. ``here`` names the layers that the
    worker has, ``grouped`` those of each group, ``placed`` those of the records; the three agree in a sound plan.
    ``arithmetic`` names the checks that fail by interval arithmetic.
    """

    format: Literal[1] = 1
    id: str
    planner: str
    worker: int
    layout: Layout
    forced: bool
    pool_bytes: int
    num_blocks: int
    here: tuple[str, ...]
    grouped: tuple[tuple[str, ...], ...]
    placed: tuple[str, ...]
    pages: tuple[Page, ...]
    arithmetic: tuple[str, ...] = ()


def is_replayable(plan: Plan | None) -> bool:
    """Whether the plan places its layers in one pool per worker (0.29 and later)."""
    return (
        plan is not None
        and plan.groups is not None
        and plan.placement is not None
        and not any(record.aliased for placement in plan.placement for record in placement.records)
    )


def pools_of(case: Case, plan: Plan, planner: str = "") -> tuple[Pool, ...]:
    """The pools of every worker that has layers.

    Raises:
        NotReplayable: nothing is placed, layers alias tensors of their own (0.26 to 0.28), or the records of a
            worker state pools of several sizes.
    """
    if not is_replayable(plan):
        raise NotReplayable("no layer is placed in a pool")
    assert plan.placement is not None
    planned, own = planned_specs(plan), own_specs(case)
    identity = case_id(case)
    pools = []
    for at, (worker, placement) in enumerate(zip(case.settings.workers, plan.placement, strict=False)):
        here = tuple(layer.name for layer in case.layers if layer.stage == worker.stage)
        if not here and not placement.records:
            continue
        sizes = {record.size for record in placement.records}
        if len(sizes) > 1:
            raise NotReplayable(f"the records of worker {at} state pools of {sorted(sizes)[:3]} bytes")
        mine = {name: planned[name] for name in here if name in planned}
        pools.append(Pool(
            id=identity, planner=planner, worker=at, layout=case.settings.layout,
            forced=case.settings.layout_origin == "forced", pool_bytes=next(iter(sizes), 0),
            num_blocks=placement.num_blocks, here=here, grouped=placement.group_layers,
            placed=tuple(name for record in placement.records for name in record.layers),
            pages=tuple(_pages(case.settings.layout, placement, mine, own)),
        ))  # fmt: skip
    return tuple(pools)


def _pages(
    layout: Layout, placement: Placement, mine: dict[str, tuple[int, Spec]], own: dict[str, Spec]
) -> Iterator[Page]:
    facts: dict[tuple[int, int], tuple[int, int]] = {}
    for record in placement.records:
        for at, name in enumerate(record.layers):
            if name not in mine:
                continue
            group, spec = mine[name]
            heads, head_stride = _heads(layout, record, placement.num_blocks, spec)
            # Layers share their specs, and the geometry of one costs more than all else here.
            key = id(spec), id(own[name])
            if key not in facts:
                content = content_bytes(with_block_size(own[name], spec.block_size))
                alignment = stride_alignment(spec)
                if isinstance(spec.block_stride_alignment, MultipleOf) and alignment > 1:
                    alignment //= heads  # counted in kernel blocks, of which each head has its own run
                facts[key] = content, alignment
            content, alignment = facts[key]
            strip = page_bytes(spec) // heads
            yield Page(
                layer=name, group=group, start=record.offset + at * record.layer_stride,
                block_stride=record.block_stride, heads=heads, head_stride=head_stride if heads > 1 else strip,
                strip=strip, content=content, alignment=alignment,
            )  # fmt: skip


def _heads(layout: Layout, record: Record, num_blocks: int, spec: Spec) -> tuple[int, int]:
    """Strips of a page, and the bytes from one to the next: a dimension steps over all that lies inside it.

    Only the record's own strides are used, as by the worker that makes views of them: of a layout's letters, those
    right of H are inside it, and L and B step by the record.
    """
    inside = layout[layout.index("H") + 1 :]
    if "L" not in inside and "B" not in inside:
        return 1, 0  # a page is one run of bytes
    step = record.layer_stride * len(record.layers) if inside[0] == "L" else record.block_stride * num_blocks
    return heads_of(spec), step


def with_arithmetic(pool: Pool, failing: Iterable[str]) -> Pool:
    """``pool`` with the checks that fail by interval arithmetic, for the machine that replays it to agree with."""
    return structs.replace(pool, arithmetic=tuple(sorted(failing)))


def handed_over(pools: Iterable[Pool]) -> list[script.Pool]:
    """The pools as the script for a bare machine reads them from its lines."""
    return [script.decode(msgspec.json.encode(pool).decode()) for pool in pools]


def write_pools(path: Path, pools: Iterable[Pool]) -> int:
    """Writes one pool a line; the number of lines. Raises OSError."""
    lines = [msgspec.json.encode(pool) for pool in pools]
    write_whole(path, b"".join(line + b"\n" for line in lines))
    return len(lines)
