"""Tries pools just above the smallest one the planner accepts: do they serve what is claimed of them?

Requests are of the model length, with distinct texts, and are computed in turn in chunks of a full batch, so that all
of them are at their fullest together at the end.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from fuzz.planners.trace import Spot
from fuzz.planners.tree_serve_engine import Engine
from fuzz.planners.tree_serve_run import Raised, guarded
from fuzz.planners.workload import Violation
from oracles.case import ChunkedLocalSpec, MambaSpec, SlidingWindowSpec

MAX_CALLS = 400
"""Allocations that one pool may take: about a fifth of a second."""

MAX_HELD = 40_000
"""Blocks of one pool."""

MAX_HASHES = 20_000
"""Prefix hashes of the requests of one pool, at 3 µs each."""

LAST_TOKENS = 3
"""Tokens of each request that are generated one by one."""


class Probe:
    """One pool and the requests that it is claimed to serve at once."""

    def __init__(self, engine: Engine, num_blocks: int, count: int) -> None:
        self.engine, self.num_blocks, self.count = engine, num_blocks, count
        self.manager: Any = guarded("construct", -1, engine.manager, num_blocks)
        self.chunker = engine.chunker(self.manager)
        self.preempted_at = -1
        self.chunks: list[int] = []  # of all requests, in order
        self.lag = lag_of(engine)

    def run(self) -> tuple[int, int, str]:
        """Requests that reached the model length at once; the length at which one did not, and how it failed."""
        hasher = self.engine.hasher()
        prompt = max(1, self.engine.model_len - LAST_TOKENS)
        requests = [
            self.engine.request(f"full {n}", list(range(n * 2**32, n * 2**32 + prompt)), hasher)
            for n in range(self.count)
        ]
        running: list[Any] = []
        flights: deque[tuple[Any, int]] = deque()
        for request in requests:
            if not self.step(request, flights, admit=not running):
                return len(running), 0, "admission"
            running.append(request)
        waiting = deque(running)
        stuck = 0
        while waiting:
            request = waiting.popleft()
            before = request.num_computed_tokens
            if request.num_computed_tokens >= self.engine.model_len - 1:
                continue
            if not self.step(request, flights, admit=False):
                if self.count == 1 and before > self.preempted_at and self.resume(request, flights):
                    waiting.append(request)
                    continue
                done = sum(r.num_computed_tokens >= self.engine.model_len - 1 for r in running)
                return done, before, "growth"
            stuck = stuck + 1 if request.num_computed_tokens == before else 0
            if stuck > len(running):
                return self.count, 0, "chunk"  # the batch is shorter than any chunk may be; no capacity to judge
            waiting.append(request)
        return self.count, max(self.preempted_at, 0), "preempted" if self.preempted_at >= 0 else ""

    def resume(self, request: Any, flights: deque[tuple[Any, int]]) -> bool:
        """What the engine does with a request that runs alone and gets no block: frees it, ends its step in flight,
        and admits it again, with what the prefix cache has of it. Whether that went.
        """
        self.preempted_at = request.num_computed_tokens
        guarded("free", -1, self.manager.free, request)
        self.settle(flights, 0)
        request.status = self.engine.request_module.RequestStatus.PREEMPTED
        request.num_computed_tokens = 0
        return self.step(request, flights, admit=True)

    def step(self, request: Any, flights: deque[tuple[Any, int]], *, admit: bool) -> bool:
        """Computes the next chunk of one request, looked up first when it is admitted; whether there were blocks."""
        engine = self.engine
        guarded("new_step_starts", -1, self.manager.new_step_starts)
        new = request.num_computed_tokens == 0
        found: dict[str, Any] = {}
        if new and engine.caching and not engine.replays:
            blocks, hit, *_ = guarded("lookup", -1, self.manager.get_computed_blocks, request)
            found = {"num_new_computed_tokens": hit, "new_computed_blocks": blocks}
        done = request.num_computed_tokens + int(found.get("num_new_computed_tokens", 0))
        count = min(request.num_tokens - done, engine.batched_tokens, engine.model_len - 1 - done)
        if count > 0 and engine.aligns_chunks:
            split = self.chunker._mamba_block_aligned_split
            count = guarded("chunk", -1, split, request, count, done - request.num_computed_tokens)
        if count > 0:
            count = guarded("chunk", -1, self.chunker._reserve_prefill_lookahead, request, done, count)
        if count <= 0:
            return True
        self.chunks.append(count)
        given = self.allocate(request, count, new=new, admit=admit, found=found)
        if given is None:
            return False
        request.status = engine.request_module.RequestStatus.RUNNING
        request.num_computed_tokens = done + count
        request.num_in_flight_tokens += count
        flights.append((request, count))
        self.settle(flights, self.lag)
        if request.num_computed_tokens == request.num_tokens < engine.model_len:
            request.append_output_token_ids(2**62 + request.num_tokens)
        copies, retained = guarded("copies", -1, self.manager.take_kv_cache_block_copies)
        if retained:
            guarded("free_copies", -1, self.manager.block_pool.free_blocks, retained)
        self.manager.take_new_block_ids()
        del copies
        return True

    def allocate(self, request: Any, count: int, *, new: bool, admit: bool, found: dict[str, Any]) -> Any:
        """Blocks for the next ``count`` tokens, or None."""
        return guarded(
            "allocate", -1, self.manager.allocate_slots, request, count, num_lookahead_tokens=self.engine.lookahead,
            num_encoder_tokens=self.engine.case.settings.encoder_tokens if new else 0, full_sequence_must_fit=new,
            has_scheduled_reqs=not admit, **found,
        )  # fmt: skip

    @staticmethod
    def settle(flights: deque[tuple[Any, int]], left: int) -> None:
        """Takes the results of all steps in flight but ``left``."""
        while len(flights) > left:
            settled, tokens = flights.popleft()
            settled.num_in_flight_tokens -= tokens


def probe(engine: Engine, extras: Sequence[int], *, traced: bool) -> tuple[tuple[int, ...], tuple[Violation, ...], str]:
    """Pools tried (in blocks), what did not hold of them, and why pools were left out."""
    assert engine.plan.capacity is not None
    needed = sum(engine.plan.capacity.request_blocks)
    tried: list[int] = []
    found: list[Violation] = []
    skipped = ""
    for extra in extras:
        num_blocks = needed + 1 + extra
        spot = pool_spot(engine, needed, extra) if traced else None
        claim = located(spot, claimed, engine, num_blocks)
        whole = max(1, math.floor(claim))
        chunks = whole * (engine.model_len // engine.batched_tokens + 2 + LAST_TOKENS)
        hashes = whole * (engine.model_len // engine.sizes.hash_block) if engine.caching else 0
        if chunks > MAX_CALLS or num_blocks > MAX_HELD or hashes > MAX_HASHES or needed == 0:
            skipped = "the model length is too long to try the pools"
            continue
        tried.append(num_blocks)
        served, at, how = located(spot, tried_pool, engine, num_blocks, whole)
        if not how or how == "chunk":
            continue
        detail = f"a pool of {num_blocks} blocks serves {served} of {whole} requests of {engine.model_len} tokens"
        where = f"{detail}; blocks run out {'at admission' if how == 'admission' else f'at token {at}'}"
        path = f"{grown_by(engine)}{how}" if how in ("growth", "preempted") else how
        if how == "preempted":
            message = f"a pool of {num_blocks} blocks serves its one request only after preempting it at token {at}"
            found.append(Violation(check="Q10", path=f"capacity.smallest.{path}", message=message, spot=spot))
        elif whole == 1:
            found.append(Violation(check="Q10", path=f"capacity.smallest.{path}", message=where, spot=spot))
        elif whole * needed == num_blocks:
            message = f"{where}; the null block was counted"
            found.append(Violation(check="Q11", path="capacity.concurrency.null_block", message=message, spot=spot))
        else:
            found.append(Violation(check="Q11", path=f"capacity.concurrency.{path}", message=where, spot=spot))
    return tuple(tried), tuple(found), skipped


def pool_spot(engine: Engine, needed: int, extra: int) -> Spot:
    """The pool, the steps in flight, and the chunks of a request that never lacks a block."""
    chunks: list[int] = []
    try:
        ample = Probe(engine, min(MAX_HELD, 4 * needed + 64), 1)
        chunks = ample.chunks
        ample.run()
    except Raised:
        pass  # as it does in the pool that is tried; what would have come after is whole batches
    while (left := engine.model_len - 1 - sum(chunks)) > 0:
        chunks.append(min(left, engine.batched_tokens))
    return Spot("pool", (extra, lag_of(engine), LAST_TOKENS, *chunks))


def tried_pool(engine: Engine, num_blocks: int, count: int) -> tuple[int, int, str]:
    """What ``Probe.run`` says of a pool and of so many requests."""
    return Probe(engine, num_blocks, count).run()


def lag_of(engine: Engine) -> int:
    """Steps in flight while the next is scheduled."""
    return int(engine.case.settings.batches_in_flight > 1)


def located(spot: Spot | None, function: Callable[..., Any], *args: Any) -> Any:
    """Calls ``function``; a call of vLLM that raises there is told with ``spot``. Raises Raised, NotServed."""
    try:
        return function(*args)
    except Raised as raised:
        raise Raised(structs.replace(raised.violation, spot=spot)) from raised


def grown_by(engine: Engine) -> str:
    """The part of a path that tells bills apart: which caches of the plan are billed less than what they reach."""
    planned = [spec for _, _, _, spec in engine.layers]
    for kind, name in ((ChunkedLocalSpec, "chunk."), (MambaSpec, "state."), (SlidingWindowSpec, "window.")):
        if any(isinstance(spec, kind) for spec in planned):
            return name
    return ""


def claimed(engine: Engine, num_blocks: int) -> float:
    """Requests of the model length that the tree claims to serve at once with this pool."""
    config = copy.copy(engine.scheduler_config)
    config.num_blocks = num_blocks
    return float(guarded("claim", -1, engine.tree.function("get_kv_cache_capacity"), engine.config, config)[1])
