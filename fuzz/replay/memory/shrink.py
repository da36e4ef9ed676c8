"""A plan in a pool of fewer blocks: offsets and strides are one function of the block count (law M9).

With blocks outermost nothing but the size depends on the count; with layers outermost each layer begins a whole
number of bytes per block into the pool. A plan that is not made so stays as it is.
"""

from __future__ import annotations

from collections.abc import Set

from msgspec import structs

from oracles.placement import BLOCK_OUTERMOST
from oracles.plan import Placement, Record


def shrunk(placement: Placement, layout: str, num_blocks: int, layers: Set[str]) -> Placement | None:
    """``placement`` as it were with ``num_blocks`` blocks; None when the places of ``layers`` do not scale.

    Other layers are foreign to the worker and have no pages there.
    """
    now = placement.num_blocks
    if num_blocks >= now:
        return None
    outer = layout in BLOCK_OUTERMOST
    records = []
    for record in placement.records:
        if layers.isdisjoint(record.layers):
            scaled: Record | None = structs.replace(record, size=record.size // now * num_blocks)
        else:
            scaled = _outer(record, now, num_blocks) if outer else _inner(record, now, num_blocks)
        if record.size % now or scaled is None:
            return None
        records.append(scaled)
    return structs.replace(placement, num_blocks=num_blocks, records=tuple(records))


def _outer(record: Record, now: int, wanted: int) -> Record | None:
    last = record.offset + (len(record.layers) - 1) * record.layer_stride
    if not 0 <= record.offset <= last < record.block_stride:
        return None
    return structs.replace(record, size=record.size // now * wanted)


def _inner(record: Record, now: int, wanted: int) -> Record | None:
    if record.offset % now or record.layer_stride % now:
        return None
    return structs.replace(
        record, size=record.size // now * wanted, offset=record.offset // now * wanted,
        layer_stride=record.layer_stride // now * wanted,
    )  # fmt: skip
