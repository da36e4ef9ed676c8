"""Oracles judge whatever a planner says: they never fall over it, and their time grows with the layers only."""

from __future__ import annotations

import random
import time

import msgspec

from fuzz.strategies import draw_case
from oracles.case import Case
from oracles.derived import DERIVED
from oracles.plan import Plan, Planned
from oracles.quality import assess
from oracles.reference import compare_with, expected_plan
from tests.oracles.models import FULL, RULES, STATE, WINDOW, breaches, model, right_plan, settings

NUMBERS = (0, -1, 1, 3, 2**40)


def spoiled(plan: Plan, source: random.Random) -> Plan:
    """``plan`` with one number, one list or one flag of it changed."""
    raw = msgspec.to_builtins(plan)
    stages = [name for name in ("groups", "placement", "sizes", "capacity") if raw.get(name)]
    if not stages:
        return plan
    at = raw
    key: str | int = source.choice(stages)
    while isinstance(at[key], dict | list) and at[key]:
        at = at[key]
        key = source.choice(list(at)) if isinstance(at, dict) else source.randrange(len(at))
    value = at[key]
    if isinstance(value, bool):
        at[key] = not value
    elif isinstance(value, int | float):
        at[key] = source.choice(NUMBERS)
    elif isinstance(value, str):
        at[key] = "another"
    try:
        return msgspec.convert(raw, Plan)
    except msgspec.ValidationError:
        return plan


def test_no_oracle_falls_over_a_spoiled_plan() -> None:
    source = random.Random(9)
    judged = 0
    for seed in range(800):
        case = draw_case(random.Random(f"nonsense {seed}"))
        expected = expected_plan(case, RULES, "native")
        if not isinstance(expected, Planned) or len(case.layers) > 20:
            continue
        derived = {name: expected_plan(derive(case), RULES, "native") for name, derive in DERIVED.items()}
        for _ in range(5):
            plan = spoiled(expected.plan, source)
            if any(at >= len(plan.specs) or at < 0 for g in plan.groups or () for at in (*g.members, g.spec or 0)):
                continue  # no worker lets such a reply through
            breaches(case, plan, derived=derived)
            compare_with(expected, Planned(plan=plan))
            assess(case, plan)
            judged += 1
    assert judged > 100


def _seconds(case: Case) -> float:
    plan = right_plan(case)
    best = 1e9
    for _ in range(3):
        begin = time.process_time()
        expected = expected_plan(case, RULES, "native")
        breaches(case, plan)
        compare_with(expected, Planned(plan=plan))
        best = min(best, time.process_time() - begin)
    return best


def test_judging_grows_linearly_in_layers() -> None:
    def stack(count: int) -> Case:
        parts = [(spec, 1) for _ in range(count // 4) for spec in (FULL, WINDOW, STATE, STATE)]
        return model(*parts, under=settings(layout="BLHNC", mamba_mode="align", model_len=64, batched_tokens=64))

    assert _seconds(stack(1000)) < 25 * _seconds(stack(100))
