"""Plans a case and serves a workload on the plan with vLLM's own cache manager.

``tree_serve_engine`` builds the manager, ``tree_serve_run`` plays the workload, ``tree_serve_checks`` looks at the
manager's books and ``tree_serve_execute`` at the contents; ``tree_serve_capacity`` tries the pools. A violation is
data; what it means is said in ``fuzz/replay/requests``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from fuzz.planners.protocol import Answer, Ask
from fuzz.planners.trace import Recorder, Trace
from fuzz.planners.tree import Tree
from fuzz.planners.tree_plan import Inputs, Run, refusal
from fuzz.planners.tree_serve_capacity import probe
from fuzz.planners.tree_serve_engine import Engine, NotServed
from fuzz.planners.tree_serve_execute import Executor
from fuzz.planners.tree_serve_live import longest_request
from fuzz.planners.tree_serve_run import Player, Raised, guarded
from fuzz.planners.tree_serve_shadow import MAX_CELLS, Shadow, View, views_of
from fuzz.planners.tree_specs import Inexpressible
from fuzz.planners.workload import Served, Workload
from oracles.case import Case
from oracles.plan import Outcome, Plan, Planned, Refused, Unsupported

QUARTERS = 4
POOL_BLOCKS = 6_000
"""Blocks of a workload's pool at most; its requests are short enough that fewer nearly always do."""


def served_answer(tree: Tree, ask: Ask) -> Answer:
    """Plans ``ask.case`` and serves ``ask.workload`` on the plan when every stage answered."""
    outcome, run, seconds = planned(tree, ask.case)
    if run is None or not isinstance(outcome, Planned) or ask.workload is None:
        return Answer(number=ask.number, outcome=outcome, seconds=seconds)
    started = time.thread_time()
    served = serve(tree, ask.case, run, outcome.plan, ask.workload)
    spent = time.thread_time() - started
    return Answer(number=ask.number, outcome=outcome, seconds=seconds, served=structs.replace(served, seconds=spent))


def planned(tree: Tree, case: Case) -> tuple[Outcome, Run | None, float]:
    """The outcome of all stages, and the pass that made it, whose objects serve."""
    try:
        config = tree.configs.make(case)
        inputs = Inputs(tree, case)
    except Inexpressible as error:
        return Unsupported(field=error.field, reason=error.reason), None, 0.0
    except Exception as error:
        # The tree's own validation of a spec or a config: its word on the input.
        return Refused(refusals=(refusal(error, "input"),), plan=Plan()), None, 0.0
    run = Run(tree, case, config, inputs)
    started = time.thread_time()
    run.all_stages("all")
    return run.outcome(), run, time.thread_time() - started


def serve(tree: Tree, case: Case, run: Run, plan: Plan, workload: Workload) -> Served:
    """Plays the workload, then tries the pools."""
    if not plan.groups or plan.sizes is None or plan.capacity is None:
        return Served(skipped="there is nothing to serve: no groups")
    try:
        engine = Engine(tree, case, run, plan)
    except NotServed as error:
        return Served(skipped=str(error))
    try:
        served = play(engine, workload)
    except NotServed as error:
        served = with_trace(Served(skipped=str(error)), engine, 0, (), Recorder(on=workload.traced))
    if served.violations or not workload.pools:
        return served
    try:
        tried, violations, skipped = probe(engine, workload.pools, traced=workload.traced)
    except NotServed as error:
        return structs.replace(served, skipped=str(error))
    except Raised as raised:
        return structs.replace(served, violations=(raised.violation,))
    return structs.replace(served, probes=tried, violations=violations, skipped=served.skipped or skipped)


def play(engine: Engine, workload: Workload) -> Served:
    """Plays the workload on a pool of its size. Raises NotServed."""
    views, states, rings = views_of(engine)
    num_blocks = pool_blocks(engine, workload)
    if Shadow.cells(num_blocks, views) > MAX_CELLS:
        raise NotServed("the pool's contents are too many to follow")
    record = Recorder(on=workload.traced)
    try:
        manager = guarded("construct", -1, engine.manager, num_blocks)
    except Raised as raised:
        return with_trace(Served(violations=(raised.violation,)), engine, num_blocks, views, record)
    shadow = Shadow(num_blocks, views, [*dict.fromkeys([*(state.group for state in states), *rings])])
    executor = Executor(
        shadow, views, states, rings, lookahead=engine.lookahead, model_len=engine.model_len,
        encoder_tokens=engine.case.settings.encoder_tokens, record=record,
    )  # fmt: skip
    served = Player(engine, workload, manager, num_blocks, executor).play()
    return with_trace(served, engine, num_blocks, views, record)


def with_trace(served: Served, engine: Engine, num_blocks: int, views: Sequence[View], record: Recorder) -> Served:
    """``served`` with what was done, if it was taken down."""
    if not record.on:
        return served
    stores = dict.fromkeys(view.store for view in views if view.rule != "encoder")
    trace = Trace(
        blocks=num_blocks, caching=engine.caching, looks_up=engine.looks_up, events=tuple(record.events),
        stores=tuple((group, span, int(shifted)) for group, span, shifted in stores),
    )  # fmt: skip
    return structs.replace(served, trace=trace)


def pool_blocks(engine: Engine, workload: Workload) -> int:
    """Blocks of a pool that holds ``fullness`` quarters of the workload's longest request."""
    unit = engine.sizes.scheduler_block
    arrivals = [arrival for turn in workload.turns for arrival in turn.arrivals]
    longest = max([(a.shared + a.own) * unit // 16 + a.tokens + a.output for a in arrivals] or [1])
    longest = min(longest, longest_request(engine))
    needed = 0
    for group, spec in enumerate(engine.specs):
        if hasattr(spec, "mamba_cache_mode") and engine.case.settings.mamba_mode != "all":
            # Beside the running state: two that a step moves between, one kept inside a chunk, one copied.
            needed += 5 + spec.num_speculative_blocks
        else:
            needed += -(-(longest + engine.lookahead + engine.drafts) // engine.span(group)) + 1
    return max(2, min(POOL_BLOCKS, 1 + needed * workload.fullness // QUARTERS))
