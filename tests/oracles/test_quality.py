"""The cost of groupings, and the least that any would cost."""

from __future__ import annotations

from msgspec import structs

from oracles.quality import Optimum, Quality, measure, optimum
from tests.oracles.models import FULL, STATE, WINDOW, model, right_plan, settings

SMALL = settings(model_len=1024, batched_tokens=1024)
"""A full layer bills 64 blocks, a window's 65."""


def test_cost_of_two_equal_groups() -> None:
    case = model((FULL, 2), (WINDOW, 2), under=SMALL)
    assert measure(case, right_plan(case)) == Quality(
        groups=2, block_bytes=131_072, padding_bytes=0, request_bytes=131_072 * (64 + 65)
    )


def test_a_narrow_group_is_billed_at_full_width() -> None:
    case = model((FULL, 3), (WINDOW, 2), under=SMALL)
    found = measure(case, right_plan(case))
    assert found is not None
    assert (found.groups, found.padding_bytes) == (3, 65_536)


def test_the_optimum_may_have_more_groups_than_the_plan() -> None:
    """Seven windows beside six full layers: one group each wastes a page a block, single layers waste none."""
    case = model((FULL, 4), (WINDOW, 5), under=SMALL)
    plan = right_plan(case)
    found = measure(case, plan)
    assert found is not None
    assert (found.groups, found.padding_bytes) == (2, 65_536)
    assert optimum(case, plan) == Optimum(padding_bytes=0, request_bytes=65_536 * (4 * 64 + 5 * 65))


def test_the_optimum_is_never_above_the_plan() -> None:
    for full, window, state in ((1, 9, 0), (2, 5, 3), (3, 3, 4), (7, 2, 1)):
        case = model((FULL, full), (WINDOW, window), (STATE, state), under=settings(layout="BLHNC", mamba_mode="align"))
        plan = right_plan(case)
        found, best = measure(case, plan), optimum(case, plan)
        assert found is not None
        assert best is not None
        assert best.request_bytes <= found.request_bytes
        assert best.padding_bytes <= found.padding_bytes


def test_mixed_pages_are_grouped_by_sum() -> None:
    """Pages of 3, 2, 2 and 1 units in two groups: 4 and 4."""
    unit = structs.replace(FULL, num_kv_heads=1)
    case = model(
        *((structs.replace(unit, num_kv_heads=heads), 1) for heads in (3, 2, 2, 1)), (WINDOW, 1),
        under=settings(layout="BLHNC", model_len=1024, batched_tokens=1024),
    )  # fmt: skip
    best = optimum(case, right_plan(case))
    assert best == Optimum(padding_bytes=0, request_bytes=65_536 * (64 + 65))


def test_large_models_have_no_optimum() -> None:
    case = model((FULL, 11))
    assert optimum(case, right_plan(case)) is None
