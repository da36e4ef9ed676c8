"""Interval arithmetic against painting every byte of small pools."""

from __future__ import annotations

import random
import time

import pytest

from oracles.laws.reading import planned_specs
from oracles.placement import Run, first_overlap, placed_pages
from tests.oracles.models import FULL, MLA, STATE, WINDOW, model, right_plan, settings

Owned = list[tuple[int, Run]]


def painted(runs: Owned, blocks: int, *, across: bool) -> bool:
    """Whether bytes meet, by looking at each."""
    held: dict[int, set[tuple[int, int]]] = {}
    meets = False
    for owner, run in runs:
        for block in range(blocks):
            for byte in range(run.start + block * run.stride, run.start + block * run.stride + run.size):
                holders = held.setdefault(byte, set())
                if across:
                    meets |= any(other != owner and theirs != block for other, theirs in holders)
                else:
                    meets |= bool(holders)
                holders.add((owner, block))
    return meets


def drawn(source: random.Random) -> tuple[Owned, int]:
    """A few runs: of one stride or several, with and without a common cell."""
    blocks = source.randint(1, 6)
    stride = source.randint(1, 12)
    runs = []
    for owner in range(source.randint(2, 4)):
        pace = stride if source.random() < 0.8 else source.randint(1, 12)
        start = source.choice([source.randint(0, 12), owner * stride * blocks, 0])
        runs.append((owner, Run(start, pace, source.randint(1, 8))))
    return runs, blocks


@pytest.mark.parametrize("across", [False, True])
def test_overlaps_are_those_that_painting_finds(across: bool) -> None:
    source = random.Random(4)
    for _ in range(1500):
        runs, blocks = drawn(source)
        found = first_overlap(runs, blocks, across=across)
        assert (found is not None) == painted(runs, blocks, across=across), (runs, blocks, found)


def test_a_pool_of_terabytes_is_judged_without_counting_its_blocks() -> None:
    blocks = 2**40
    page = 65_536
    apart = [(0, Run(0, page, page)), (1, Run(page * blocks, page, page))]
    assert first_overlap(apart, blocks, across=False) is None
    assert first_overlap([(0, Run(0, page, page)), (1, Run(page // 2, page, page))], blocks, across=True) == (0, 1)


def test_heads_of_a_page_are_runs_of_their_own() -> None:
    case = model((FULL, 2), under=settings(layout="LHBNC"))
    plan = right_plan(case)
    assert plan.placement is not None
    first, second = placed_pages("LHBNC", plan.placement[0], planned_specs(plan))
    assert first.runs[1] == Run(8194 * 8192, 8192, 8192)
    assert len(second.runs) == 8
    assert second.runs[0].start == 8194 * 65_536


def test_a_typical_plan_is_judged_within_a_millisecond() -> None:
    """60 layers; the best of several tries, since the machine is shared."""
    case = model((MLA, 12), (WINDOW, 12), (STATE, 36), under=settings(layout="BLHNC", mamba_mode="align"))
    plan = right_plan(case)
    assert plan.placement is not None
    pool, planned = plan.placement[0], planned_specs(plan)

    def judge() -> float:
        begin = time.perf_counter()
        pages = placed_pages("BLHNC", pool, planned)
        runs = [(page.group, run) for page in pages for run in page.runs]
        assert first_overlap(runs, pool.num_blocks, across=True) is None
        return time.perf_counter() - begin

    assert min(judge() for _ in range(20)) < 1e-3
