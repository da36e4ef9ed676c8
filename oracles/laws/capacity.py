"""Laws of capacity: what is claimed can be served.

Block 0 of a pool is the null block and belongs to no request: a pool of n blocks serves n - 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from oracles.capacity import total_blocks
from oracles.law import Breach, Evidence, law
from oracles.laws.reading import group_specs


def _has_pool(evidence: Evidence) -> bool:
    plan = evidence.plan
    return plan is not None and bool(plan.groups) and bool(plan.placement)


def _claims(evidence: Evidence) -> bool:
    return _has_pool(evidence) and evidence.plan is not None and evidence.plan.capacity is not None


def _request_blocks(evidence: Evidence) -> int:
    """Blocks that one request of the model length served holds in all groups."""
    plan = evidence.plan
    assert plan is not None and plan.groups is not None
    settings = evidence.case.settings
    length = plan.capacity.model_len if plan.capacity is not None else settings.model_len
    specs = [[spec for _, spec in group_specs(plan, group)] for group in plan.groups]
    return total_blocks([one for one in specs if one], settings, length)


def _pool_blocks(evidence: Evidence) -> int:
    assert evidence.plan is not None and evidence.plan.placement is not None
    return min(placement.num_blocks for placement in evidence.plan.placement)


@law("C1", applies=lambda e: _has_pool(e) and (_claims(e) or not e.case.settings.auto_fit))
def one_request_fits(evidence: Evidence) -> Iterator[Breach]:
    """A pool that the planner accepts serves one request of the model length.

    Otherwise the engine starts, and the first long request waits for ever.
    """
    needed, pool = _request_blocks(evidence), _pool_blocks(evidence)
    if needed > pool - 1:
        only_null = ".null_block" if needed == pool else ""  # a fault of its own: the check forgot just that block
        yield Breach(
            law="C1", path=f"placement[].num_blocks{only_null}",
            detail=f"a pool of {pool} blocks, one of them the null block, was accepted; one request needs {needed}",
        )  # fmt: skip


@law("C3", applies=_claims)
def claimed_requests_are_admitted(evidence: Evidence) -> Iterator[Breach]:
    """As many requests of the model length as are claimed can run at once.

    The claim is what an operator sizes a service by. The null block serves nobody.
    """
    assert evidence.plan is not None and evidence.plan.capacity is not None
    whole = math.floor(evidence.plan.capacity.concurrency)
    needed, pool = _request_blocks(evidence), _pool_blocks(evidence)
    if whole * needed > pool - 1:
        null = " (the null block was counted)" if whole * needed == pool else ""
        path = "capacity.concurrency.null_block" if null else "capacity.concurrency"
        yield Breach(
            law="C3", path=path,
            detail=f"{whole} requests of {needed} blocks are claimed; {pool - 1} blocks serve requests{null}",
        )  # fmt: skip


@law("C4", applies=_claims)
def check_and_claim_use_one_pool(evidence: Evidence) -> Iterator[Breach]:
    """The claim counts the same pool, and the same blocks per request, as the check that admitted the model.

    With or without the null block: which of the two is right is law C3.
    """
    assert evidence.plan is not None and evidence.plan.capacity is not None
    capacity, needed, pool = evidence.plan.capacity, _request_blocks(evidence), _pool_blocks(evidence)
    billed = sum(capacity.request_blocks) if capacity.request_blocks else needed
    if not needed or not billed:
        return
    if billed < needed:
        yield Breach(
            law="C4", path="capacity.request_blocks",
            detail=f"the claim bills {billed} blocks a request, which holds {needed}",
        )  # fmt: skip
    elif all(abs(capacity.concurrency - blocks / billed) > 1e-9 * max(blocks, 1) for blocks in (pool, pool - 1)):
        yield Breach(
            law="C4", path="capacity.concurrency",
            detail=f"{capacity.concurrency:g} requests of {billed} blocks are claimed of a pool of {pool}",
        )  # fmt: skip
    elif capacity.tokens > capacity.concurrency * capacity.model_len:
        yield Breach(
            law="C4", path="capacity.tokens",
            detail=f"{capacity.tokens} tokens are claimed, more than {capacity.concurrency:g} × {capacity.model_len}",
        )  # fmt: skip
