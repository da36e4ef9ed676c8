"""Plans of a model, replayed on the CPU: each worker's pool is allocated, painted through its strides, and read back.

A pool is replayed at its planned size up to ``LARGEST_BYTES``, a larger one with as many blocks as fit into that, and
any in a small copy whose every byte is painted. Offsets and strides are one function of the block count (law M9), so
that the smaller pool stands for the planned one. Memory is touched where it is painted only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from fuzz.replay import device as script
from fuzz.replay.memory.check import FEWEST_BLOCKS, PATHS, Disagreement, one_worker, pools_with_arithmetic
from fuzz.replay.memory.pools import NotReplayable, Pool, handed_over, is_replayable
from fuzz.replay.memory.select import SMALL_BYTES
from fuzz.replay.memory.shrink import shrunk
from oracles.case import Case, canonical
from oracles.law import Breach
from oracles.plan import Outcome, Plan, plan_of

LARGEST_BYTES = 2**33 - 2 * script.GUARD
"""Beyond what 32-bit offsets reach, and an allocation that any machine grants while it is hardly touched."""

SECONDS = 60.0
"""A pool takes a tenth of a second; this ends what hangs."""

INDICES: dict[script.Check, str] = {"K1": "index", "K2": "index.groups", "K3": "allocation"}
"""Fields of a placement under which the checks without a law are reported."""


class PoolReplay(Struct, frozen=True, kw_only=True):
    """One pool: bytes and blocks as replayed, bytes as planned, and what failed, a sentence for each check.

    ``result`` is ``clean``, ``broken``, ``died`` (the process that painted it) or ``skipped``, with the ``reason``.
    """

    worker: int
    pool_bytes: int
    num_blocks: int
    planned_bytes: int
    result: str
    mode: str = ""
    reason: str = ""
    found: dict[str, str] = {}


class Painted(Struct, frozen=True, kw_only=True):
    """The replay of one plan. ``skipped`` says why nothing of it could be allocated."""

    pools: tuple[PoolReplay, ...] = ()
    skipped: str = ""


def paint_plans(plans: Sequence[tuple[Case, Outcome]]) -> list[Painted]:
    """Replays each plan, in one process for all; equal plans once, and they share one result.

    Raises:
        Disagreement: painting and interval arithmetic judge a pool differently.
    """
    chosen: list[tuple[Pool, int]] = []
    spans: dict[bytes, slice] = {}
    skipped = {b"": "no pool is planned"}
    keys = [_key(case, outcome) for case, outcome in plans]
    for key, (case, outcome) in zip(keys, plans, strict=True):
        plan = plan_of(outcome)
        if plan is None or key in spans or key in skipped:
            continue
        try:
            sizes = list(_sizes(case, plan))
        except NotReplayable as error:
            skipped[key] = str(error)
            continue
        spans[key] = slice(len(chosen), len(chosen) + len(sizes))
        chosen += sizes
    told = _replay([pool for pool, _ in chosen])
    replays = [_told(pool, planned, one) for (pool, planned), one in zip(chosen, told, strict=True)]
    made = {key: Painted(skipped=why) for key, why in skipped.items()}
    made |= {key: Painted(pools=tuple(replays[span])) for key, span in spans.items()}
    return [made[key] for key in keys]


def _key(case: Case, outcome: Outcome) -> bytes:
    """What names a plan; empty where no pool is planned."""
    plan = plan_of(outcome)
    return canonical(case) + msgspec.json.encode(plan) if plan is not None and is_replayable(plan) else b""


def _sizes(case: Case, plan: Plan) -> Iterator[tuple[Pool, int]]:
    """Each worker's pool in a large and a small size, with the bytes that were planned. Raises NotReplayable."""
    assert plan.placement is not None
    for pool in pools_with_arithmetic(case, plan, ""):
        whole = pool.pool_bytes
        fits = whole <= LARGEST_BYTES
        limits = [limit for limit in (LARGEST_BYTES, SMALL_BYTES) if limit < whole]
        if fits:
            yield pool, whole
        alone, lone = one_worker(case, plan, pool.worker)
        for limit in limits:
            blocks = max(FEWEST_BLOCKS, limit * pool.num_blocks // whole)
            smaller = shrunk(plan.placement[pool.worker], case.settings.layout, blocks, set(pool.here))
            if smaller is None and not fits:
                words = (
                    f"the pool of worker {pool.worker} takes {whole:,} bytes, and its places do not scale with blocks"
                )
                raise NotReplayable(words)
            if smaller is None:
                continue
            for one in pools_with_arithmetic(alone, structs.replace(lone, placement=(smaller,)), ""):
                yield structs.replace(one, id=pool.id, worker=pool.worker), whole


def _replay(pools: Sequence[Pool]) -> list[dict[str, Any]]:
    handed = handed_over(pools)
    results = [one for one in script.replay(handed, "cpu", 2 * LARGEST_BYTES / 2**30, SECONDS) if "summary" not in one]
    for one in results:
        if one["result"] == "disagrees":
            found = "; ".join(f"{fault['check']} {fault['detail']}" for fault in one["found"])
            raise Disagreement(f"replay of case {one['id']}, worker {one['worker']}: {one['reason']} ({found})")
    return results


def _told(pool: Pool, planned: int, one: dict[str, Any]) -> PoolReplay:
    return PoolReplay(
        worker=pool.worker, pool_bytes=pool.pool_bytes, num_blocks=pool.num_blocks, planned_bytes=planned,
        result=one["result"], mode=one.get("mode", ""), reason=one.get("reason", ""),
        found={fault["check"]: fault["detail"] for fault in one.get("found", ())},
    )  # fmt: skip


def breaches_of(case: Case, painted: Painted) -> tuple[Breach, ...]:
    """What replaying a plan found, one breach for each check."""
    forced = ".forced" if case.settings.layout_origin == "forced" else ""
    paths = PATHS | INDICES
    found: dict[str, Breach] = {}
    for pool in painted.pools:
        for check in script.CHECKS:
            if check in pool.found:
                words = f"worker {pool.worker}: {pool.found[check]}"
                found.setdefault(check, Breach(law=check, path=f"placement[].{paths[check]}{forced}", detail=words))
        if pool.result == "died":
            words = f"worker {pool.worker}: the process that painted the pool died ({pool.reason})"
            found.setdefault("alive", Breach(law="alive", path="placement[].replay", error="died", detail=words))
    return tuple(found.values())


def painted_words(painted: Sequence[Painted]) -> str:
    """What was replayed and found, in a few words."""
    pools = [pool for one in painted for pool in one.pools]
    if not pools:
        return f"not replayed: {next((one.skipped for one in painted if one.skipped), 'no pool is planned')}"
    done = [pool for pool in pools if pool.result in ("clean", "broken")]
    told = [f"{len(done)} pool{'' if len(done) == 1 else 's'} painted on the CPU and read back"]
    if done:
        largest = max(done, key=lambda pool: pool.pool_bytes)
        smaller = largest.pool_bytes < largest.planned_bytes
        planned = f" for the {largest.planned_bytes / 2**30:.1f} planned" if smaller else ""
        told.append(f"the largest of {largest.pool_bytes / 2**30:.1f} GiB{planned}")
    told += sorted({f"{pool.result}: {pool.reason}" for pool in pools if pool.result in ("skipped", "died")})
    broken = sorted({check for pool in pools for check in pool.found})
    told.append(f"broken: {', '.join(broken)}" if broken else "every page kept its bytes" if done else "nothing seen")
    return "; ".join(told)
