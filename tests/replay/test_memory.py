"""Memory replay in the parent: what painting finds, and that it agrees with the interval arithmetic."""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter

import pytest
from msgspec import structs

from fuzz.planners.process import Planner, Question
from fuzz.replay.memory import check
from fuzz.replay.memory.check import Disagreement, replay_memory, replay_pools
from fuzz.replay.memory.marks import paint_marks
from fuzz.replay.memory.paint import TooLarge, paint
from fuzz.replay.memory.pools import NotReplayable, Page, Pool, pools_of
from fuzz.replay.memory.shrink import shrunk
from oracles.case import Case
from oracles.plan import Plan, plan_of
from tests.oracles.models import FULL, MLA, WINDOW, model, right_plan, settings, staged, with_records
from tests.replay.damage import KINDS, is_harmless, small_plans

DAMAGED = 2000


def page(layer: str, group: int, start: int, stride: int, strip: int, heads: int = 1, head_stride: int = 0) -> Page:
    return Page(
        layer=layer, group=group, start=start, block_stride=stride, heads=heads, head_stride=head_stride or strip,
        strip=strip, content=strip * heads, alignment=1,
    )  # fmt: skip


def pool(size: int, blocks: int, *pages: Page) -> Pool:
    names = tuple(dict.fromkeys(one.layer for one in pages))
    return Pool(
        id="0", planner="", worker=0, layout="BLHNC", forced=False, pool_bytes=size, num_blocks=blocks, here=names,
        grouped=(names,), placed=names, pages=pages,
    )  # fmt: skip


@pytest.mark.parametrize("painter", [paint, paint_marks])
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (pool(80, 4, page("a", 0, 0, 20, 10), page("b", 0, 10, 20, 10)), set()),
        (pool(80, 4, page("a", 0, 0, 20, 10), page("b", 0, 9, 20, 10)), {"P3"}),
        (pool(80, 4, page("a", 0, 0, 20, 20), page("b", 1, 0, 20, 10)), set()),
        (pool(80, 4, page("a", 0, 0, 20, 20), page("b", 1, 0, 10, 10)), {"P4"}),
        (pool(80, 4, page("a", 0, 1, 20, 20)), {"P2"}),
        (pool(80, 4, page("a", 0, -1, 20, 20)), {"P2"}),
        (pool(80, 4, page("a", 0, 0, 19, 20)), {"P3"}),
        (pool(80, 4, page("a", 0, 0, 0, 20)), {"P3"}),
        (pool(80, 4, page("a", 0, 0, 10, 5, heads=2, head_stride=40)), set()),
        (pool(80, 4, page("a", 0, 0, 10, 5, heads=2, head_stride=30)), {"P3"}),
        # One group overwrites its own block 1 by block 2, which hides neither from the other group.
        (pool(80, 4, page("a", 0, 0, 10, 10), page("a2", 0, 10, 10, 10), page("b", 1, 0, 10, 10)), {"P3", "P4"}),
    ],
)
def test_a_painter_finds_what_is_wrong(painter: object, wrong: Pool, expected: set[str]) -> None:
    assert callable(painter)
    assert painter(wrong).found.keys() == expected


def test_a_page_far_outside_the_pool_is_refused_rather_than_allocated() -> None:
    with pytest.raises(TooLarge, match="cells"):
        paint(pool(80, 4, page("a", 0, 2**40 + 1, 20, 20)))


def test_a_right_plan_is_clean_in_every_layout() -> None:
    for layout in ("LBNHC", "LBHNC", "LHBNC", "BLNHC", "BLHNC", "BHLNC"):
        case = model((FULL, 3), (WINDOW, 2), under=settings(layout=layout))
        assert replay_memory(case, right_plan(case)) == ()


def test_a_breach_names_its_check_its_path_and_a_forced_layout() -> None:
    case = model((MLA, 2), (WINDOW, 1), under=settings(layout="BLNHC", layout_origin="forced"))
    plan = right_plan(case)
    wrong = with_records(plan, lambda at, record: structs.replace(record, offset=record.offset + 1) if at else record)
    (breach, *_) = replay_memory(case, wrong)
    assert (breach.law, breach.path) == ("P2", "placement[].bounds.forced")
    assert breach.detail == "worker 0: pages of group 1 were written outside the pool"


def test_a_layer_of_another_stage_is_foreign() -> None:
    case = staged([(FULL, 1)], [(FULL, 1)])
    plan = right_plan(case)
    assert plan.placement is not None
    first, second = plan.placement
    swapped = structs.replace(plan, placement=(structs.replace(first, records=second.records), second))
    assert [breach.law for breach in replay_memory(case, swapped)] == ["P1"]


def test_heads_are_strips_that_step_by_the_records_own_strides() -> None:
    case = model((FULL, 2), under=settings(layout="LHBNC", block_override=100, model_len=16))
    (one,) = pools_of(case, right_plan(case))
    assert one.pages[1] == Page(
        layer="model.0.1", group=0, start=6_553_600, block_stride=8192, heads=8, head_stride=819_200, strip=8192,
        content=65_536, alignment=1,
    )  # fmt: skip


def test_records_of_several_sizes_are_not_one_pool() -> None:
    case = model((FULL, 2), (WINDOW, 2), under=settings(layout="LBNHC", hybrid_manager=True))
    plan = with_records(right_plan(case), lambda at, one: structs.replace(one, size=one.size + at))
    with pytest.raises(NotReplayable, match="state pools of"):
        pools_of(case, plan)
    (told,) = replay_pools(case, plan)
    assert "state pools of" in told.skipped


def test_a_plan_whose_layers_alias_has_no_pool() -> None:
    case = model((FULL, 1))
    plan = with_records(right_plan(case), lambda _, one: structs.replace(one, aliased=True))
    assert replay_memory(case, plan) == ()


def test_a_shrunk_placement_is_what_the_planner_makes_of_fewer_blocks(unpatched: Planner) -> None:
    for layout in ("LBNHC", "BLNHC", "LHBNC", "BHLNC"):
        large = model((FULL, 3), (WINDOW, 2), under=settings(layout=layout, block_override=1000, model_len=16))
        small = structs.replace(large, settings=structs.replace(large.settings, block_override=7))
        whole, wanted = (plan_of(answer.outcome) for answer in unpatched.ask([Question(large), Question(small)]))
        assert whole is not None
        assert wanted is not None
        assert whole.placement is not None
        assert (shrunk(whole.placement[0], layout, 7, {one.name for one in large.layers}),) == wanted.placement


def test_a_placement_that_is_no_function_of_the_block_count_is_not_shrunk() -> None:
    case = model((FULL, 2), under=settings(layout="LBNHC"))
    plan = with_records(right_plan(case), lambda _, one: structs.replace(one, offset=one.offset + 1))
    assert plan.placement is not None
    assert shrunk(plan.placement[0], "LBNHC", 3, {"model.0.0"}) is None


def test_a_disagreement_with_the_arithmetic_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    case = model((FULL, 2))
    plan = with_records(right_plan(case), lambda _, one: structs.replace(one, layer_stride=one.layer_stride - 1))
    assert {breach.law for breach in replay_memory(case, plan)} == {"P3"}
    monkeypatch.setattr(check, "by_arithmetic", lambda *_: {})
    with pytest.raises(Disagreement, match=r"P3 .* only painting finds that a page of model\.0\.0"):
        replay_memory(case, plan)


def _damaged(plans: list[tuple[Case, Plan]]) -> tuple[Counter[str], Counter[str]]:
    """Replays damaged plans of every kind; (all, detected) by kind. Fails on one that is wrongly let pass."""
    source = random.Random("damaged plans")
    made: Counter[str] = Counter()
    detected: Counter[str] = Counter()
    while made.total() < DAMAGED:
        kind, damage = list(KINDS.items())[made.total() % len(KINDS)]
        case, plan = source.choice(plans)
        wrong = damage(source, plan)
        if wrong is None or wrong == plan:
            continue
        made[kind] += 1
        replayed = list(replay_pools(case, wrong))  # raises Disagreement
        assert not any(one.skipped for one in replayed), (kind, replayed)
        if any(one.found for one in replayed):
            detected[kind] += 1
        else:
            assert all(is_harmless(one) for one in pools_of(case, wrong)), (kind, wrong)
    return made, detected


@pytest.mark.slow
def test_painter_and_arithmetic_agree_on_damaged_plans_and_miss_only_harmless_ones(
    unpatched: Planner, patched: Planner
) -> None:
    plans = small_plans(unpatched, 120, "whole") + small_plans(patched, 120, "whole")
    made, detected = _damaged(plans)
    assert made.total() == DAMAGED
    assert set(made) == set(KINDS)
    print({kind: f"{detected[kind]} of {count}" for kind, count in made.items()})
    for kind, least in (
        ("offset moved", 0.7), ("stride shrunk", 0.6), ("record duplicated", 1.0), ("pool shrunk", 0.7),
        ("layer foreign", 0.9), ("layer missing", 1.0), ("page grown", 0.7),
    ):  # fmt: skip
        assert detected[kind] >= least * made[kind], (kind, detected[kind], made[kind])


@pytest.mark.slow
def test_painting_every_byte_and_painting_marks_find_the_same(unpatched: Planner) -> None:
    plans = small_plans(unpatched, 80, "marks")
    source = random.Random("two painters")
    compared = 0
    while compared < 300:
        case, plan = source.choice(plans)
        wrong = source.choice(list(KINDS.values()))(source, plan)
        if wrong is None:
            continue
        for one in pools_of(case, wrong):
            if one.pool_bytes < 2**24 and one.pages:
                compared += 1
                assert paint(one).found.keys() == paint_marks(one).found.keys(), one


def test_a_small_pool_is_replayed_within_five_milliseconds(unpatched: Planner) -> None:
    """The median over real plans; the best of three tries each, since the machine is shared."""
    plans = small_plans(unpatched, 60, "speed")

    def seconds(case: Case, plan: Plan) -> float:
        begun = time.perf_counter()
        replay_memory(case, plan)
        return time.perf_counter() - begun

    assert statistics.median(min(seconds(*one) for _ in range(3)) for one in plans) < 5e-3


def test_real_plans_of_both_contracts_are_clean(either: Planner) -> None:
    case = model((MLA, 4), (WINDOW, 2), (FULL, 3), under=settings(layout="BLNHC"))
    plan = plan_of(either.ask([Question(case)])[0].outcome)
    assert plan is not None
    (told,) = replay_pools(case, plan)
    assert told.found == {}
    assert not told.skipped
