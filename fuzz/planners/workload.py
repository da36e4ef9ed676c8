"""A *workload* is what a served model is asked: requests that come, run step by step, and go.

It is data, made by the parent and played by the worker on vLLM's own KVCacheManager (``tree_serve``). Lengths are
given in sixteenths of the plan's scheduler block plus single tokens, so that one workload crosses block borders
under every plan. What the worker saw comes back as ``Served``.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from fuzz.planners.trace import Spot, Trace

SIXTEENTHS = 16
"""Parts of a scheduler block in which lengths are counted: chunks end inside blocks as well as on their borders."""

MAX_TURNS = 2_000
"""Twenty times the usual workload; bounds what a message can make a worker do."""

Parts = Annotated[int, Meta(ge=0, le=1_024)]
Few = Annotated[int, Meta(ge=0, le=64)]


class Arrival(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One new request: ``shared`` sixteenths of a scheduler block from the common text number ``text``, then
    ``own`` sixteenths and ``tokens`` tokens that no other request has; ``output`` tokens to generate.

    Two arrivals of one text share a prefix as long as the shorter of them.
    """

    text: Few = 0
    shared: Parts = 0
    own: Parts = 0
    tokens: Few = 1
    output: Annotated[int, Meta(ge=1, le=256)] = 4


class Turn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One scheduler step, and what happens before it.

    ``aborts`` and ``preempts`` pick among the unfinished and the running requests, counted round. ``budget`` is the
    tokens of the step in sixteenths of a scheduler block (0: as many as the case batches). ``accepted`` is how many
    draft tokens of each request are right, counted round by one more than there are.
    """

    arrivals: Annotated[tuple[Arrival, ...], Meta(max_length=64)] = ()
    aborts: Annotated[tuple[Few, ...], Meta(max_length=16)] = ()
    preempts: Annotated[tuple[Few, ...], Meta(max_length=16)] = ()
    budget: Parts = 0
    accepted: Few = 0


class Workload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Turns on a pool that holds ``fullness`` quarters of the longest request, with ``lag`` steps in flight.

    ``drafts``: whether decode steps carry as many draft tokens as the case speculates. ``pools`` are the blocks
    that the pools of the capacity probe have beyond the smallest accepted one; none: no probe. ``traced``: whether the
    worker tells what it did.
    """

    turns: Annotated[tuple[Turn, ...], Meta(max_length=MAX_TURNS)] = ()
    fullness: Annotated[int, Meta(ge=4, le=64)] = 8
    lag: Annotated[int, Meta(ge=0, le=1)] = 0
    drafts: bool = False
    pools: Annotated[tuple[Few, ...], Meta(max_length=8)] = ()
    traced: bool = False


class Violation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A check that failed in the worker: its name, what of it (no sizes, no names), where, and in words.

    ``turn`` is the step (-1: outside), ``group`` the index of the cache group (-1: none in particular). ``spot`` says
    where the check looked, after the first ``at`` events of the trace; None for a pool that was not traced.
    """

    check: str
    path: str
    message: str
    turn: int = -1
    group: int = -1
    error: str = ""
    frame: str = ""
    spot: Spot | None = None
    at: int = 0


class Served(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a workload. ``skipped`` says why it was not served, or not in full.

    ``tokens`` were computed, ``hit_tokens`` found in the cache, ``refusals`` allocations refused. ``probes`` are the
    pools (in blocks) whose capacity was tried. ``seconds`` is CPU time of serving, vLLM's and ours. ``trace`` is that
    of a workload that is to be traced.
    """

    violations: tuple[Violation, ...] = ()
    skipped: str = ""
    turns: int = 0
    tokens: int = 0
    hit_tokens: int = 0
    refusals: int = 0
    preemptions: int = 0
    finished: int = 0
    pool_blocks: int = 0
    probes: tuple[int, ...] = ()
    seconds: float = 0.0
    trace: Trace | None = None
