"""Plays a workload on one manager: schedules as the engine does, runs the steps on the shadow, checks after each.

The order of calls is the scheduler's: running requests first, the last one preempted when blocks run out, then
waiting ones in order, each looked up in the prefix cache. With one step in flight the next step is scheduled before
the results of the last are known, and runs after it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import structs

from fuzz.planners.protocol import words_of
from fuzz.planners.trace import Recorder, Spot
from fuzz.planners.tree_plan import refusal
from fuzz.planners.tree_serve_checks import Books, needs_of
from fuzz.planners.tree_serve_engine import Engine, NotServed, filtered
from fuzz.planners.tree_serve_execute import Executor
from fuzz.planners.tree_serve_live import Live, Scheduled, Step, budget_of, longest_request
from fuzz.planners.workload import Served, Turn, Violation, Workload

STATES_A_LIMIT = re.compile(r"\b(not support(ed)?|only supports?|not compatible|requires?)\b", re.IGNORECASE)
"""Words by which an error says that vLLM does not serve such models: a documented limit and no fault."""

REFUSING_CALLS = frozenset({"construct", "lookup"})
"""Calls in which the cache manager says so: when it is made, or of what it is made of, at the first request."""


class Raised(Exception):
    """A call of vLLM raised; ``violation`` tells which."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation)
        self.violation = violation


def guarded(what: str, turn: int, function: Callable[..., Any], *args: Any, **optional: Any) -> Any:
    """Calls a function of vLLM, with those keyword arguments that it knows. Raises Raised, and NotServed for a limit
    that vLLM states.
    """
    try:
        return function(*args, **filtered(function, optional))
    except MemoryError:
        raise
    except Exception as error:
        words = words_of(error, 2000).strip().partition("\n")[0]
        if what in REFUSING_CALLS and isinstance(error, AssertionError | ValueError) and STATES_A_LIMIT.search(words):
            raise NotServed(f"vLLM states a limit: {limit_of(words)}") from error
        raise Raised(violation_of(error, what, turn)) from error


def limit_of(words: str) -> str:
    """A limit without the numbers of the case, so that cases with one limit are counted together."""
    return re.sub(r"\d+", "N", words)[:160]


def violation_of(error: BaseException, what: str, turn: int) -> Violation:
    """An exception of the manager as a violation: a function, not a line, for the fingerprint."""
    told = refusal(error, "capacity")
    frame = told.frames[-1].rpartition(":")[0] if told.frames else ""
    return Violation(
        check="Q1", path=f"serve.{what}", turn=turn, error=told.type, frame=frame,
        message=f"{what} raised {told.type}: {told.message[:300]}",
        spot=Spot("call"),
    )  # fmt: skip


class Player:
    """One workload on one manager."""

    def __init__(self, engine: Engine, workload: Workload, manager: Any, num_blocks: int, executor: Executor) -> None:
        self.engine, self.workload, self.manager, self.executor = engine, workload, manager, executor
        self.record: Recorder = executor.record
        self.books = Books(manager, num_blocks, self.record)
        self.chunker = engine.chunker(manager)
        self.hasher = engine.hasher()
        self.lag = workload.lag if engine.case.settings.batches_in_flight > 1 else 0
        self.drafts = engine.drafts if workload.drafts and not self.lag else 0
        self.longest = longest_request(engine)
        self.waiting: deque[Live] = deque()
        self.running: list[Live] = []
        self.in_flight: deque[Step] = deque()
        self.made = 0
        self.turn = 0
        self.totals = Served(pool_blocks=num_blocks)

    def add(self, **more: int) -> None:
        """Counts."""
        self.totals = structs.replace(self.totals, **{k: getattr(self.totals, k) + v for k, v in more.items()})

    @property
    def found(self) -> list[Violation]:
        """Violations so far."""
        return [*self.books.found, *self.executor.found]

    def play(self) -> Served:
        """All turns, then everything freed."""
        try:
            for number, turn in enumerate(self.workload.turns):
                self.turn = self.books.turn = number
                self.play_turn(turn)
                if self.found:
                    break
            if not self.found:
                self.finish_all()
        except Raised as raised:
            told = structs.replace(raised.violation, at=len(self.record.events))
            return structs.replace(self.totals, violations=(*self.found, told))
        return structs.replace(self.totals, violations=tuple(self.found))

    def play_turn(self, turn: Turn) -> None:
        """One scheduler step, and what comes before it."""
        for number in turn.aborts:
            unfinished = [*self.running, *self.waiting]
            if unfinished:
                self.drop(unfinished[number % len(unfinished)])
        for number in turn.preempts:
            if self.running:
                self.preempt(self.running[number % len(self.running)])
        for arrival in turn.arrivals:
            live = Live(self.made, arrival, self.engine, self.hasher, self.longest)
            self.record("arrive", live.uid, live.text, live.shared, live.prompt)
            self.waiting.append(live)
            self.made += 1
        step = self.schedule(turn)
        self.books.check(self.books.tables(self.running), walk=False)
        if self.found:
            return  # what the step would do with blocks it should not have is a consequence
        if step.parts:
            self.in_flight.append(step)
        while len(self.in_flight) > (self.lag if step.parts else 0):
            self.settle(self.in_flight.popleft())
        self.add(turns=1)

    def finish_all(self) -> None:
        """Settles what is in flight, drops all requests, and checks that nothing is left."""
        while self.in_flight:
            self.settle(self.in_flight.popleft())
        for live in [*self.running, *self.waiting]:
            self.drop(live)
        self.books.turn = -1
        self.books.check_end()

    def drop(self, live: Live) -> None:
        """Frees a request for good: finished, or aborted."""
        live.finished = True
        live.generation += 1
        self.record("free", live.uid)
        guarded("free", self.turn, self.manager.free, live.request)
        if live in self.running:
            self.running.remove(live)
        else:
            self.waiting.remove(live)

    def preempt(self, live: Live) -> None:
        """Frees a running request, which waits to be computed again; what it has in flight is dropped."""
        self.record("preempt", live.uid)
        guarded("free", self.turn, self.manager.free, live.request)
        live.generation += 1
        live.drafts = 0
        live.request.status = self.engine.request_module.RequestStatus.PREEMPTED
        live.request.num_computed_tokens = 0
        live.request.num_output_placeholders = 0
        self.running.remove(live)
        self.waiting.appendleft(live)
        self.add(preemptions=1)

    def schedule(self, turn: Turn) -> Step:
        """Decides what the next step computes, and allocates for it."""
        budget = budget_of(turn, self.engine)
        self.record("begin")
        guarded("new_step_starts", self.turn, self.manager.new_step_starts)
        parts: list[Scheduled] = []
        preempted = self.totals.preemptions
        for live in list(self.running):
            if budget > 0 and live in self.running:
                part = self.extend(live, budget, turn)
                if part is not None:
                    parts.append(part)
                    budget -= part.count
        while self.waiting and budget > 0 and self.totals.preemptions == preempted:
            part = self.admit(self.waiting[0], budget, turn)
            if part is None:
                if not self.running and not parts and not self.in_flight:
                    self.drop(self.waiting[0])  # the pool is too small for it; the capacity probe judges pools
                break
            parts.append(part)
            budget -= part.count
        tables = self.books.tables(self.running)
        for part in parts:
            needs = needs_of(
                part, self.executor.views, self.executor.states, lookahead=self.engine.lookahead,
                model_len=self.engine.model_len, encoder_tokens=self.executor.encoder_tokens,
            )  # fmt: skip
            self.books.check_backing(part, tables, needs)
            self.advance(part)
        self.record("drain", bool(parts))
        return Step(turn=self.turn, parts=tuple(parts), copies=self.take_copies())

    def advance(self, part: Scheduled) -> None:
        """Counts the tokens of a step as computed, as soon as it is scheduled."""
        request = part.live.request
        request.num_computed_tokens += part.count
        request.num_in_flight_tokens += part.count
        placed = self.lag and request.num_computed_tokens >= part.live.known + request.num_output_placeholders
        request.num_output_placeholders += int(placed)
        self.record("advance", part.live.uid, placed)
        self.add(tokens=part.count)

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Drains the copies that the next step begins with, and what else the scheduler drains."""
        copies, retained = guarded("copies", self.turn, self.manager.take_kv_cache_block_copies)
        if retained:
            guarded("free_copies", self.turn, self.books.pool.free_blocks, retained)
        self.manager.take_new_block_ids()
        drain = getattr(self.manager, "take_boundary_state_offloads", None)
        if drain is not None:
            drain()
        return tuple((copy.src_block_id, copy.dst_block_id) for copy in copies)

    def clip(self, live: Live, count: int, hit: int) -> int:
        """The length of a chunk, by the tree's own rules."""
        reserve, wanted = getattr(self.chunker, "_reserve_prefill_lookahead", None), count
        try:
            if count > 0 and self.engine.aligns_chunks:
                split = self.chunker._mamba_block_aligned_split
                count = guarded("chunk", self.turn, split, live.request, count, hit)
            if count > 0 and reserve is not None:
                count = guarded("chunk", self.turn, reserve, live.request, live.computed + hit, count)
        except Raised as raised:
            spot = Spot("chunk", (live.uid, count, hit))
            raise Raised(structs.replace(raised.violation, spot=spot)) from raised
        if wanted > 0 and (self.engine.aligns_chunks or count != wanted):
            self.record("clip", live.uid, wanted, hit, count)
        return int(count)

    def extend(self, live: Live, budget: int, turn: Turn) -> Scheduled | None:
        """The next tokens of a running request, or None when it has none or was preempted for lack of blocks."""
        waiting = live.request.num_output_placeholders
        if waiting and live.known + waiting >= live.total:
            return None  # its last token is in flight
        count = live.known + live.drafts + waiting - live.computed
        count = min(count, budget, self.engine.model_len - live.computed - 1)
        count = self.clip(live, count, 0)
        if count <= 0:
            return None
        while (blocks := self.extended(live, count)) is None:
            victim = self.running[-1]
            self.preempt(victim)
            if victim is live:
                return None
        for table, ids in zip(live.tables, blocks.get_block_ids(), strict=True):
            table.extend(ids)
        return self.part(live, count, turn, hit=-1)

    def extended(self, live: Live, count: int) -> Any:
        """Blocks for ``count`` tokens more of a running request, or None."""
        self.record("extend", live.uid, count, True)
        return self.allocate(live, count, num_lookahead_tokens=self.engine.lookahead)

    def admit(self, live: Live, budget: int, turn: Turn) -> Scheduled | None:
        """The first tokens of a waiting request, or None when it must wait on."""
        request, hit, blocks = live.request, 0, None
        if self.engine.looks_up:
            self.record("lookup", live.uid)
            blocks, hit, *junction = guarded("lookup", self.turn, self.manager.get_computed_blocks, request)
            request.shared_prefix_boundary = junction[0] if junction else 0
            self.check_hit(live, hit)
        count = self.clip(live, min(live.known - hit, budget), hit)
        if count <= 0:
            return None
        self.record("admit", live.uid, hit + count, bool(self.running), True)
        given = self.allocate(
            live, count, num_new_computed_tokens=hit, new_computed_blocks=blocks,
            num_lookahead_tokens=self.engine.lookahead, num_encoder_tokens=self.executor.encoder_tokens,
            full_sequence_must_fit=True, has_scheduled_reqs=bool(self.running),
        )  # fmt: skip
        if given is None:
            return None
        self.waiting.popleft()
        self.running.append(live)
        request.status = self.engine.request_module.RequestStatus.RUNNING
        request.num_computed_tokens = hit
        live.tables = [list(ids) for ids in self.manager.get_block_ids(request.request_id)]
        self.add(hit_tokens=hit)
        return self.part(live, count, turn, hit=hit)

    def check_hit(self, live: Live, hit: int) -> None:
        """A hit ends on a boundary at which hits may end, and leaves a token to compute."""
        fine = bool(getattr(self.manager.coordinator, "enable_partial_hash_hits", False))
        unit = self.engine.sizes.hash_block if fine else self.engine.sizes.scheduler_block
        spot = Spot("hit", (live.uid,))
        if hit % unit:
            self.books.note("Q7", "hit.aligned", f"a hit of {hit} tokens; hits end at multiples of {unit}", spot=spot)
        elif hit >= live.known:
            words = f"a hit of {hit} tokens leaves nothing to compute of {live.known}"
            self.books.note("Q7", "hit.whole", words, spot=spot)

    def allocate(self, live: Live, count: int, **more: Any) -> Any:
        """Blocks for ``count`` tokens more, or None; a refusal is checked to have changed nothing."""
        everyone = [*self.running] if live in self.running else [*self.running, live]
        before, counts, cached = self.books.tables(everyone), self.books.counts(), self.books.cached()
        blocks = guarded("allocate", self.turn, self.manager.allocate_slots, live.request, count, **more)
        if blocks is None:
            self.record.refused()
            self.add(refusals=1)
            self.books.check_refusal(live, before, counts, cached, everyone)
        return blocks

    def part(self, live: Live, count: int, turn: Turn, *, hit: int) -> Scheduled:
        """What a request does in the step, with the worker's tables as they are now."""
        start = live.computed
        placed = live.request.num_output_placeholders
        drafts = max(0, start + count - live.known - placed)
        return Scheduled(
            live=live, generation=live.generation, turn=self.turn, start=start, count=count, drafts=drafts,
            accepted=turn.accepted % (drafts + 1), hit=hit, tables=tuple(tuple(ids) for ids in live.tables),
            exports=self.exports(live),
        )  # fmt: skip

    def exports(self, live: Live) -> tuple[tuple[int, int, int], ...]:
        """States that the worker is to keep inside the chunk, where the manager reserved a block for one."""
        found = []
        for group, single in enumerate(self.manager.coordinator.single_type_managers):
            reserved = getattr(single, "_checkpoints", {}).get(live.request.request_id)
            if reserved is not None:
                position, column = reserved
                table = live.tables[group]
                if column < len(table) and table[column]:
                    found.append((group, table[column], position))
        return tuple(found)

    def settle(self, step: Step) -> None:
        """Runs a step and takes its results."""
        self.executor.run(step)
        for part in step.parts:
            live, request = part.live, part.live.request
            if live.finished:
                continue
            request.num_in_flight_tokens -= part.count
            if part.generation != live.generation:
                self.record("settle", live.uid, 0, 0, False)
                continue
            live.drafts = 0
            placed = request.num_output_placeholders
            rejected = part.drafts - part.accepted
            request.num_computed_tokens -= rejected
            if part.settled < live.known:
                self.record("settle", live.uid, rejected, 0, False)
                continue  # a chunk of the prompt, or of what is computed again
            sampled = min(1 + part.accepted, live.total - live.known)
            live.sample(sampled)
            self.record("settle", live.uid, rejected, sampled, bool(placed))
            if placed:
                request.num_output_placeholders -= 1
                kept = request.num_computed_tokens - request.num_output_placeholders
                if self.engine.caching:
                    guarded("cache", self.turn, self.manager.cache_blocks, request, kept)
            if live.known >= live.total:
                self.drop(live)
                self.add(finished=1)
            else:
                live.drafts = min(self.drafts, live.total - live.known)
