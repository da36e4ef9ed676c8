"""Plans with one thing wrong in where pages lie, and a judge of bytes that knows neither painter nor arithmetic."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
from msgspec import structs

from fuzz.planners.process import Planner, Question
from fuzz.replay.memory.pools import Pool, is_replayable
from fuzz.replay.memory.shrink import shrunk
from fuzz.strategies import Shape, draw_case, vocabulary_of
from oracles.case import Case
from oracles.geometry import page_bytes
from oracles.plan import Plan, Record, plan_of

Damage = Callable[[random.Random, Plan], Plan | None]
"""A plan with one thing wrong; None where there is nothing of the kind to damage."""


def small_plans(planner: Planner, count: int, seed: str) -> list[tuple[Case, Plan]]:
    """Real plans of drawn cases, in pools of 2 to 7 blocks, so that a damaged one is painted as it is."""
    shape = Shape(vocabulary=vocabulary_of(planner.hello()))
    cases = [draw_case(random.Random(f"{seed} {at}"), shape) for at in range(count)]
    source = random.Random(seed)
    small = []
    for case, answer in zip(cases, planner.ask([Question(case) for case in cases]), strict=True):
        plan = plan_of(answer.outcome)
        if plan is not None and is_replayable(plan) and (made := _small(case, plan, source.randint(2, 7))) is not None:
            small.append((case, made))
    return small


def _small(case: Case, plan: Plan, blocks: int) -> Plan | None:
    assert plan.placement is not None
    names = {layer.name for layer in case.layers}
    made = [shrunk(one, case.settings.layout, blocks, names) for one in plan.placement if one.records]
    if not made or None in made:
        return None
    return structs.replace(plan, placement=tuple(one for one in made if one is not None))


def _records(plan: Plan, source: random.Random, change: Callable[[list[Record], int], None]) -> Plan:
    """``plan`` with the records of one worker changed: all of them, with one picked out."""
    assert plan.placement is not None
    worker = source.choice([at for at, one in enumerate(plan.placement) if one.records])
    records = list(plan.placement[worker].records)
    change(records, source.randrange(len(records)))
    placement = list(plan.placement)
    placement[worker] = structs.replace(placement[worker], records=tuple(records))
    return structs.replace(plan, placement=tuple(placement))


def _bytes(source: random.Random, record: Record) -> int:
    """A distance that a mistake could make: a byte, a vector, a part of a stride, a stride."""
    stride = max(1, record.block_stride)
    return source.choice((1, 16, max(1, stride // 2), stride, max(1, record.layer_stride), source.randint(1, stride)))


def offset_moved(source: random.Random, plan: Plan) -> Plan | None:
    def change(records: list[Record], at: int) -> None:
        step = _bytes(source, records[at]) * source.choice((1, 1, -1))
        records[at] = structs.replace(records[at], offset=records[at].offset + step)

    return _records(plan, source, change)


def stride_shrunk(source: random.Random, plan: Plan) -> Plan | None:
    def change(records: list[Record], at: int) -> None:
        one = records[at]
        if len(one.layers) > 1 and source.random() < 0.5:
            records[at] = structs.replace(one, layer_stride=max(0, one.layer_stride - _bytes(source, one)))
        else:
            records[at] = structs.replace(one, block_stride=max(0, one.block_stride - _bytes(source, one)))

    return _records(plan, source, change)


def record_duplicated(source: random.Random, plan: Plan) -> Plan | None:
    return _records(plan, source, lambda records, at: records.append(records[at]))


def pool_shrunk(source: random.Random, plan: Plan) -> Plan | None:
    def change(records: list[Record], at: int) -> None:
        size = max(0, records[at].size - _bytes(source, records[at]))
        records[:] = [structs.replace(one, size=size) for one in records]

    return _records(plan, source, change)


def layer_foreign(source: random.Random, plan: Plan) -> Plan | None:
    assert plan.placement is not None
    elsewhere = [name for one in plan.placement for record in one.records for name in record.layers]

    def change(records: list[Record], at: int) -> None:
        layers = list(records[at].layers)
        name = source.choice((*elsewhere, "nobody.knows"))
        place = source.randrange(len(layers) + 1)
        layers[place : place + source.choice((0, 1))] = [name]
        records[at] = structs.replace(records[at], layers=tuple(layers))

    return _records(plan, source, change)


def layer_missing(source: random.Random, plan: Plan) -> Plan | None:
    def change(records: list[Record], at: int) -> None:
        layers = list(records[at].layers)
        del layers[source.randrange(len(layers))]
        records[at] = structs.replace(records[at], layers=tuple(layers))

    return _records(plan, source, change)


def page_grown(source: random.Random, plan: Plan) -> Plan | None:
    at = source.randrange(len(plan.specs))
    spec = plan.specs[at]
    if hasattr(spec, "page_size_padded") and source.random() < 0.7:
        more = source.choice((1, 16, 512, page_bytes(spec) // 2 + 1, page_bytes(spec)))
        grown = structs.replace(spec, page_size_padded=page_bytes(spec) + more)
    else:
        grown = structs.replace(spec, block_size=spec.block_size * source.choice((2, 3)))
    return structs.replace(plan, specs=(*plan.specs[:at], grown, *plan.specs[at + 1 :]))


KINDS: dict[str, Damage] = {
    "offset moved": offset_moved, "stride shrunk": stride_shrunk, "record duplicated": record_duplicated,
    "pool shrunk": pool_shrunk, "layer foreign": layer_foreign, "layer missing": layer_missing,
    "page grown": page_grown,
}  # fmt: skip


def is_harmless(pool: Pool) -> bool:
    """Whether every layer of the worker has pages of its own in every block: by comparing each strip with each.

    Slow, and without a shortcut to be wrong in.
    """
    if Counter(pool.placed) != Counter(pool.here):
        return False
    rows = np.array(
        [
            (
                page.group,
                block,
                begin := page.start + block * page.block_stride + head * page.head_stride,
                begin + page.strip,
            )
            for page in pool.pages
            for block in range(pool.num_blocks)
            for head in range(page.heads)
        ],
        dtype=np.int64,
    ).reshape(-1, 4)
    group, block, first, end = rows.T
    if len(rows) and (first.min() < 0 or end.max() > pool.pool_bytes):
        return False
    for at in range(len(rows)):
        meets = (first[at + 1 :] < end[at]) & (end[at + 1 :] > first[at])
        if (meets & ((group[at + 1 :] == group[at]) | (block[at + 1 :] != block[at]))).any():
            return False
    return True
