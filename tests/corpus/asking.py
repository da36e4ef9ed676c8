"""Asking planners about corpus files, and what tests compare of the answers.

A *shape* is one group as (kind, layers, block in tokens, span in tokens, page in bytes): what a group looks
like, without names. ``N * (shape,)`` writes equal groups that follow one another.
"""

from __future__ import annotations

from functools import cache

import pytest

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.planners.process import Planner, Question
from oracles.case import Case
from oracles.geometry import content_bytes, page_bytes, with_block_size
from oracles.plan import Group, Outcome, Placement, Plan, Planned, Refusal, Refused, Stage, plan_of, refusal_at

Shape = tuple[str, int, int, int, int]


@cache
def corpus_case(name: str) -> Case:
    """The case in corpus file ``name``, without its suffix."""
    return read_case(corpus_folder() / f"{name}.json")


def report(name: str) -> Case:
    """The case of a public report."""
    return corpus_case(f"reports/{name}")


def ask(planner: Planner, case: Case) -> Outcome:
    """The planner's outcome."""
    return planner.ask([Question(case)])[0].outcome


def plan(planner: Planner, case: Case) -> Plan:
    """The planner's whole plan; fails the test when a stage was refused."""
    outcome = ask(planner, case)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def refusal(planner: Planner, case: Case, stage: Stage) -> Refusal:
    """The planner's refusal of ``stage``; fails the test when there is none."""
    outcome = ask(planner, case)
    assert isinstance(outcome, Refused), outcome
    found = refusal_at(outcome, stage)
    assert found is not None, outcome
    return found


def groups(answer: Plan | Outcome) -> tuple[Group, ...]:
    """The groups of a plan, or of an outcome that got as far."""
    whole = answer if isinstance(answer, Plan) else plan_of(answer)
    assert whole is not None, answer
    assert whole.groups is not None, answer
    return whole.groups


def shape(group: Group) -> Shape:
    """What one group looks like."""
    return (group.kind, len(group.layers), group.block_size, group.span_tokens, group.page_bytes)


def shapes(answer: Plan | Outcome) -> tuple[Shape, ...]:
    """What the groups look like, in order."""
    return tuple(shape(group) for group in groups(answer))


def widths(answer: Plan | Outcome) -> list[int]:
    """Layers per group, in order."""
    return [len(group.layers) for group in groups(answer)]


def pools(answer: Plan) -> tuple[Placement, ...]:
    """Each worker's pool."""
    assert answer.placement is not None
    return answer.placement


def block_bytes(answer: Plan, worker: int = 0) -> int:
    """Bytes of a worker's pool per block."""
    pool = pools(answer)[worker]
    return pool.records[0].size // pool.num_blocks


def table_widths(answer: Plan) -> tuple[int | None, ...]:
    """Block-table columns of each group at the model length."""
    assert answer.sizes is not None
    return answer.sizes.widths


def request_blocks(answer: Plan) -> tuple[int, ...]:
    """Blocks of each group that one request of the model length takes."""
    assert answer.capacity is not None
    return answer.capacity.request_blocks


def concurrency(answer: Plan) -> float:
    """Requests of the model length that the planner claims to serve at once."""
    assert answer.capacity is not None
    return answer.capacity.concurrency


def padding_layers(answer: Plan | Outcome) -> int:
    """Layer slots that stay empty because every group is as wide as the widest."""
    counts = widths(answer)
    return sum(max(counts) - count for count in counts)


def placement_faults(case: Case, answer: Plan) -> list[str]:
    """What is wrong with where the pages lie, by looking at the first three and the last two block ids.

    Checked per worker: the layers placed are its own, each once; pages hold their content and lie inside the
    pool; pages of different block ids are disjoint, within a group and across groups. Offsets are affine in
    the block id, so these ids show whatever any id would.
    """
    faults: list[str] = []
    for worker, pool in zip(case.settings.workers, pools(answer), strict=True):
        own = sorted(layer.name for layer in case.layers if layer.stage == worker.stage)
        placed = sorted(name for record in pool.records for name in record.layers)
        if own != placed:
            faults.append(f"stage {worker.stage}: {len(placed)} layers placed, {len(own)} belong here")
            continue
        faults += [f"stage {worker.stage}: {fault}" for fault in _page_faults(case, answer, pool)]
    return faults


def _page_faults(case: Case, answer: Plan, pool: Placement) -> list[str]:
    asked = {layer.name: case.spec_of(layer) for layer in case.layers}
    spec_of = {
        name: answer.specs[at]
        for group in groups(answer)
        for name, at in zip(
            group.member_layers or group.layers,
            group.members or (group.spec,) * len(group.layers),
            strict=True,
        )
        if at is not None
    }
    group_of = {name: at for at, names in enumerate(pool.group_layers) for name in names}
    faults = []
    pages: list[tuple[int, int, int, str]] = []
    ids = sorted({*range(min(3, pool.num_blocks)), *range(max(0, pool.num_blocks - 2), pool.num_blocks)})
    for record in pool.records:
        for at, name in enumerate(record.layers):
            spec = spec_of[name]
            # The layer's own spec: a merge may have given it another's.
            content = content_bytes(with_block_size(asked[name], spec.block_size))
            if content > page_bytes(spec):
                faults.append(f"{name}: content of {content} bytes in a page of {page_bytes(spec)}")
            for block in ids:
                start = record.offset + at * record.layer_stride + block * record.block_stride
                pages.append((start, start + page_bytes(spec), block, name))
                if start + page_bytes(spec) > record.size:
                    faults.append(f"{name}: block {block} ends {start + page_bytes(spec) - record.size} bytes late")
    pages.sort()
    open_pages: list[tuple[int, int, int, str]] = []
    for page in pages:
        open_pages = [other for other in open_pages if other[1] > page[0]]
        for other in open_pages:
            # One block id belongs to one group at a time, so two groups may share the bytes of one id.
            if other[2] != page[2] or group_of[other[3]] == group_of[page[3]]:
                faults.append(f"{other[3]} block {other[2]} overlaps {page[3]} block {page[2]}")
        open_pages.append(page)
    return faults


def broken(what: str) -> pytest.MarkDecorator:
    """Marks a property that vLLM 0.32.0 does not have. Strict: the day it holds, this mark must go."""
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"broken on 0.32.0: {what}")
