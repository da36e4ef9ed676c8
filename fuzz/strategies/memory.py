"""Memory around the boundaries: exactly enough, one block less, one more, plenty, next to nothing.

``smallest_memory`` is an estimate from the rough plan: bytes per block times the blocks of one request and the null
block. It is exact wherever the rough plan is.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from fuzz.strategies.outline import Outline, outline
from fuzz.strategies.source import Source
from oracles.case import Case, Worker

Boundary = Literal["plenty", "enough", "one_less", "one_more", "byte_less", "spare", "tiny", "half"]
BOUNDARIES: tuple[Boundary, ...] = (*(("plenty",) * 8), *(("enough",) * 4), *(("one_more",) * 3), *(("spare",) * 4))
"""Against the smallest pool: far more; exactly it; a block more; a byte short of one more. A pool at its boundary
shows all that a large one does, and whether what a request takes was counted right."""

SHORT: tuple[Boundary, ...] = ("one_less", "byte_less", "one_less", "byte_less", "tiny")
SHORT_TO_FIT: tuple[Boundary, ...] = ("half", "one_less", "half", "byte_less", "tiny")
"""A block less than the smallest pool; a byte less; half of it; a few bytes. Seldom, for a case that is refused for
its memory shows no placement, and then at the edge; mostly where the model length is fitted to what there is."""

MAX_MEMORY = 1 << 46
"""Bytes: 64 TiB, beyond any machine and far from the format's limit."""


def smallest_memory(case: Case) -> tuple[int, ...]:
    """Bytes that each worker needs to serve one request of the model length, as far as the rough plan tells."""
    rough = outline(case)
    return tuple(_needed(rough, worker.stage) for worker in case.settings.workers)


def _needed(rough: Outline, stage: int) -> int:
    return rough.block_bytes[stage] * (rough.request_blocks + 1)


def draw_workers(source: Source, case: Case, stages: int, default: int) -> tuple[Worker, ...]:
    """One or two workers for each stage, with memory beside the smallest pool. ``default`` bytes if they do."""
    rough = outline(structs.replace(case, settings=structs.replace(
        case.settings, workers=tuple(Worker(memory=default, stage=stage) for stage in range(stages)))))  # fmt: skip
    shared, less, double = source.choice(BOUNDARIES), source.integer(0, len(SHORT) - 1), source.chance(20)
    fits = case.settings.auto_fit
    short, uneven = source.chance(40 if fits else 10), source.chance(40)
    where = source.integer(0, stages - 1)
    workers = []
    for stage in range(stages):
        needed, block = _needed(rough, stage), rough.block_bytes[stage]
        boundary = source.choice(BOUNDARIES) if uneven else shared
        if short and (stage == where or not uneven):
            boundary = (SHORT_TO_FIT if fits else SHORT)[less]
        memory = _memory(source, boundary, needed, block, default)
        workers.append(Worker(memory=memory, stage=stage))
        if double:
            # The other rank of the stage has another balance left: the smallest decides for all.
            step = source.choice((1, 3, -1)) * max(block, 1)
            # Less than a request takes is drawn above, as often as it is worth.
            other = max(0, memory + (step if memory < needed or memory + step >= needed else abs(step)))
            workers.append(Worker(memory=min(other, MAX_MEMORY), stage=stage))
    return tuple(workers)


def _memory(source: Source, boundary: Boundary, needed: int, block: int, default: int) -> int:
    if boundary == "plenty":
        return default if needed * 2 <= default else min(needed * source.choice((2, 3, 8)), MAX_MEMORY)
    if boundary == "tiny":
        return min(source.choice((block, 0, 1, 2 * block)), MAX_MEMORY)
    if boundary == "half":
        return min(needed // 2, MAX_MEMORY)
    off = {"enough": 0, "one_less": -block, "one_more": block, "byte_less": -1, "spare": block - 1}[boundary]
    return min(max(0, needed + off), MAX_MEMORY)
