"""Memory replay of a plan, and its agreement with the interval arithmetic of the laws.

Every check has a law of ``oracles.laws.placement`` for a twin. They share the plan and nothing else, so a plan on
which they differ shows a fault of our own, which ends a run.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, structs

from fuzz.replay.device import CHECKS, Check, look
from fuzz.replay.memory.marks import paint_marks
from fuzz.replay.memory.paint import MAX_CELLS, TooLarge, cells_of, paint
from fuzz.replay.memory.pools import NotReplayable, Pool, is_replayable, pools_of, with_arithmetic
from fuzz.replay.memory.shrink import shrunk
from oracles.case import Case
from oracles.law import Breach, Evidence, broken_laws
from oracles.plan import Plan, Planned

TWINS: dict[str, Check] = {"M1": "P1", "M3": "P2", "M4": "P3", "M5": "P4", "M6": "P5", "M7": "P6"}
"""The check that each law of placement must agree with. M2 and M9 speak of the memory and of other pools."""

_LAWS = frozenset(TWINS)

PATHS: dict[Check, str] = {
    "P1": "layers", "P2": "bounds", "P3": "overlap.group", "P4": "overlap.blocks", "P5": "page", "P6": "block_stride",
}  # fmt: skip

AS_PLACED_CELLS = 2**18
"""Pools of up to so many cells, counted for each group, are painted as placed; larger ones with fewer blocks."""

FEWEST_BLOCKS = 3
"""A first, a middle and a last block; fewer would hide a stride."""

MOST_BLOCKS = 254
"""Block ids that a byte can tell apart, beside an untouched one and one to spare."""


class Disagreement(Exception):
    """Painting and arithmetic judge one plan differently: a fault of kvfuzz, never a finding."""


class Replayed(Struct, frozen=True, kw_only=True):
    """One pool, replayed: the blocks that were painted (fewer than planned when the pool was scaled down) and what
    was found, a sentence for each failing check. ``skipped`` says why it was not painted.
    """

    worker: int
    painted_blocks: int
    num_blocks: int
    found: dict[Check, str]
    skipped: str = ""


def replay_memory(case: Case, plan: Plan) -> tuple[Breach, ...]:
    """What painting the plan's pools finds, as breaches of ``P1`` to ``P6``; empty for a plan without a pool.

    Raises:
        Disagreement: the interval arithmetic judges a pool otherwise.
    """
    forced = ".forced" if case.settings.layout_origin == "forced" else ""
    breaches: dict[Check, Breach] = {}
    for pool in replay_pools(case, plan):
        for check, detail in pool.found.items():
            path = f"placement[].{PATHS[check]}{forced}"
            breaches.setdefault(check, Breach(law=check, path=path, detail=f"worker {pool.worker}: {detail}"))
    return tuple(breaches[check] for check in sorted(breaches))


def replay_pools(case: Case, plan: Plan) -> Iterator[Replayed]:
    """Paints each worker's pool, small enough to be quick. Raises Disagreement."""
    if not is_replayable(plan):
        return
    assert plan.placement is not None
    for at, placement in enumerate(plan.placement[: len(case.settings.workers)]):
        alone, lone_plan = one_worker(case, plan, at)
        try:
            pools = pools_of(alone, lone_plan)
        except NotReplayable as error:
            yield Replayed(worker=at, painted_blocks=0, num_blocks=placement.num_blocks, found={}, skipped=str(error))
            continue
        for pool in pools:
            yield _replay(alone, lone_plan, pool, at)


def one_worker(case: Case, plan: Plan, at: int) -> tuple[Case, Plan]:
    """The case and the plan as if worker ``at`` were the only one."""
    assert plan.placement is not None
    settings = structs.replace(case.settings, workers=case.settings.workers[at : at + 1])
    return structs.replace(case, settings=settings), structs.replace(plan, placement=plan.placement[at : at + 1])


def _replay(case: Case, plan: Plan, pool: Pool, at: int) -> Replayed:
    whole = pool.num_blocks
    if (cells := cells_of(pool) * len({page.group for page in pool.pages})) > AS_PLACED_CELLS:
        blocks = max(FEWEST_BLOCKS, min(MOST_BLOCKS, AS_PLACED_CELLS * whole // cells))
        assert plan.placement is not None
        smaller = shrunk(plan.placement[0], case.settings.layout, blocks, set(pool.here))
        if smaller is not None:
            plan = structs.replace(plan, placement=(smaller,))
            (pool,) = pools_of(case, plan)
    try:
        painted = paint(pool) if cells_of(pool) <= MAX_CELLS else paint_marks(pool)
    except TooLarge as error:
        return Replayed(worker=at, painted_blocks=0, num_blocks=whole, found={}, skipped=str(error))
    found = look(pool) | painted.found
    expected = by_arithmetic(case, plan)
    if set(found) != expected.keys():
        raise Disagreement(_difference(case, pool, found, expected))
    return Replayed(worker=at, painted_blocks=pool.num_blocks, num_blocks=whole, found=found)


def by_arithmetic(case: Case, plan: Plan) -> dict[Check, str]:
    """The checks that fail by the laws of placement, with the laws' sentences."""
    evidence = Evidence(case=case, contract="native", outcome=Planned(plan=plan))
    return {TWINS[breach.law]: breach.detail for breach in broken_laws(evidence, _LAWS)}


def pools_with_arithmetic(case: Case, plan: Plan, planner: str) -> list[Pool]:
    """The plan's pools at their real size, each with what arithmetic says of it. Raises NotReplayable."""
    pools = pools_of(case, plan, planner)
    return [with_arithmetic(pool, by_arithmetic(*one_worker(case, plan, pool.worker))) for pool in pools]


def _difference(case: Case, pool: Pool, found: dict[Check, str], expected: dict[Check, str]) -> str:
    lines = [f"memory replay of case {pool.id} ({len(case.layers)} layers, {pool.num_blocks} blocks) disagrees:"]
    for check in sorted(set(found) ^ expected.keys()):
        side, words = ("painting", found[check]) if check in found else ("arithmetic", expected[check])
        lines.append(f"{check} ({CHECKS[check]}): only {side} finds that {words}")
    return "\n".join(lines)
