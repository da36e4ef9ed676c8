"""What a device must show, for any device: the same bodies on ``cpu`` and on ``cuda``."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from fuzz.replay import device as script
from fuzz.replay.memory.check import pools_with_arithmetic
from fuzz.replay.memory.pools import Pool, write_pools
from oracles.case import Case
from oracles.plan import Plan
from tests.oracles.models import FULL, MLA, WINDOW, model, right_plan, settings, with_records

LAYOUTS = ("LBNHC", "LBHNC", "LHBNC", "BLNHC", "BLHNC", "BHLNC")


def decoded(pools: list[Pool], folder: Any) -> list[script.Pool]:
    """The pools as the file alone reads them."""
    write_pools(folder / "plans.jsonl", pools)
    return script.read_pools(folder / "plans.jsonl")


def lines(pools: list[Pool]) -> list[str]:
    """The lines of a file of pools."""
    return [msgspec.json.encode(pool).decode() for pool in pools]


def replayed(pools: list[script.Pool], device: str, cap_gib: float = 8.0) -> list[dict[str, Any]]:
    """The results, the summary left out."""
    return list(script.replay(pools, device, cap_gib, 120.0))[:-1]


def sound(layout: str, blocks: int = 40) -> tuple[Case, Plan]:
    """Five layers in two groups, as the reference places them."""
    case = model((FULL, 3), (WINDOW, 2), under=settings(layout=layout, block_override=blocks, model_len=16))
    return case, right_plan(case)


def moved(case: Case, plan: Plan, step: int) -> list[Pool]:
    """The plan's pools with the last record ``step`` bytes away."""
    assert plan.placement is not None
    last = len(plan.placement[0].records) - 1
    wrong = with_records(plan, lambda at, one: structs.replace(one, offset=one.offset + step) if at == last else one)
    return pools_with_arithmetic(case, wrong, "")


def checks(result: dict[str, Any]) -> set[str]:
    return {fault["check"] for fault in result["found"]}


def sound_plans_are_clean(device: str, folder: Any) -> None:
    pools = [pool for layout in LAYOUTS for pool in pools_with_arithmetic(*sound(layout), "")]
    results = replayed(decoded(pools, folder), device)
    assert [(one["result"], one["mode"], one["found"]) for one in results] == [("clean", "exact", [])] * len(LAYOUTS)
    assert all(one["painted_bytes"] > 0 for one in results)


def faults_are_found(device: str, folder: Any) -> None:
    mixed = model((MLA, 2), (WINDOW, 1), under=settings(layout="BLNHC", block_override=40, model_len=64))
    pools = [*moved(*sound("BLNHC"), 1), *moved(*sound("LBNHC"), -16), *moved(mixed, right_plan(mixed), -1)]
    results = replayed(decoded(pools, folder), device)
    assert [one["result"] for one in results] == ["broken"] * len(pools)
    assert [checks(one) for one in results] == [set(pool.arithmetic) for pool in pools]


def pools_beyond_4_gib_are_painted_sparsely(device: str, folder: Any) -> None:
    sizes = [(layout, blocks) for layout in ("LBNHC", "BLNHC", "LHBNC") for blocks in (18_000, 36_000)]
    pools = [pool for layout, blocks in sizes for pool in pools_with_arithmetic(*sound(layout, blocks), "")]
    assert max(pool.pool_bytes for pool in pools) > 2**32
    results = replayed(decoded(pools, folder), device)
    assert [(one["result"], one["mode"]) for one in results] == [("clean", "sparse")] * len(pools)
    (broken,) = replayed(decoded(moved(*sound("BLNHC", 36_000), 65_536), folder), device)
    assert (broken["result"], broken["mode"]) == ("broken", "sparse")


def one_pool_does_not_end_the_others(device: str, folder: Any) -> None:
    (good,) = decoded(pools_with_arithmetic(*sound("BLNHC"), ""), folder)
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__}
    worse = script.Pool(**{**fields, "id": "impossible", "format": 2})  # the child refuses it, and ends
    results = replayed([good, worse, good], device)
    assert [one["result"] for one in results] == ["clean", "died", "clean"]
    assert "format: 2 is not a whole number from 1 to 1" in results[1]["reason"]
