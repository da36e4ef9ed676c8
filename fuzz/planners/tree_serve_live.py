"""The requests of a workload, and what the worker knows of them: block tables that only grow, and state columns."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from fuzz.planners.tree_serve_engine import Engine
from fuzz.planners.tree_serve_shadow import Identities
from fuzz.planners.workload import SIXTEENTHS, Arrival, Turn

MAX_TOKENS = 16_384
"""Tokens of one request at most: a workload is to take a second."""

MAX_BLOCKS = 768
"""Blocks of the smallest span, and hash units, that one request has at most; two scheduler blocks go before."""

FIRST_PRIVATE = 1_000
"""Texts from this number on belong to one request each."""


class Live:
    """One request: vLLM's object, the identities of its tokens, and the worker's view of it."""

    def __init__(self, uid: int, arrival: Arrival, engine: Engine, hasher: object, longest: int) -> None:
        unit = engine.sizes.scheduler_block
        room = max(1, min(longest, engine.model_len - 1))
        shared = min(arrival.shared * unit // SIXTEENTHS, room)
        prompt = min(shared + arrival.own * unit // SIXTEENTHS + arrival.tokens, room)
        self.prompt = max(1, prompt)
        self.total = min(self.prompt + arrival.output, engine.model_len)
        self.uid, self.text, self.shared = uid, arrival.text + 1, min(shared, self.prompt)
        count = self.total + 2  # a drafter's cache depends on the token after
        positions = np.arange(count, dtype=np.int64)
        text = np.where(positions < self.shared, self.text, FIRST_PRIVATE + uid)
        self.identities: Identities = text * 2**32 + positions
        self.shifted: Identities = self.identities[1:]
        self.request = engine.request(str(uid), self.identities[: self.prompt].tolist(), hasher)
        self.tables: list[list[int]] = [[] for _ in engine.specs]
        self.generation = 0
        self.drafts = 0
        self.finished = False
        # What the worker remembers between steps; touched when a step runs, not when it is scheduled.
        self.columns: dict[int, int] = {}
        self.bias = 0

    @property
    def computed(self) -> int:
        """Tokens computed, those of steps in flight counted."""
        return int(self.request.num_computed_tokens)

    @property
    def known(self) -> int:
        """Tokens whose values are known: the prompt and what was sampled."""
        return int(self.request.num_tokens)

    def sample(self, count: int) -> None:
        """Appends the next ``count`` tokens of the request's text."""
        at = self.known
        for token in self.identities[at : at + count].tolist():
            self.request.append_output_token_ids(token)


class Scheduled(Struct, frozen=True, kw_only=True):
    """One request's part of a step: tokens ``start:start + count``, of which the last ``drafts`` are drafts, and
    the first ``accepted`` of those right. ``hit`` is the tokens found in the cache when the step admits the request
    (-1: it runs on). ``tables`` are the worker's block tables at that time; ``exports`` the recurrent states that
    the step is to keep on the way, as (group, block, tokens).
    """

    live: Live
    generation: int
    turn: int
    start: int
    count: int
    drafts: int
    accepted: int
    hit: int
    tables: tuple[tuple[int, ...], ...]
    exports: tuple[tuple[int, int, int], ...] = ()

    @property
    def settled(self) -> int:
        """Tokens whose cache stands after the step: all but rejected drafts."""
        return self.start + self.count - self.drafts + self.accepted


class Step(Struct, frozen=True, kw_only=True):
    """What one step does: copies of whole blocks first, then all requests together."""

    turn: int
    parts: tuple[Scheduled, ...]
    copies: tuple[tuple[int, int], ...]


def longest_request(engine: Engine) -> int:
    """Tokens that a request of a workload may have under this plan."""
    smallest = min([engine.span(group) for group in range(len(engine.specs))] or [1])
    unit = engine.sizes.scheduler_block
    fine = MAX_BLOCKS * min(smallest, engine.sizes.hash_block)
    return min(MAX_TOKENS, engine.model_len, max(fine, 2 * unit + SIXTEENTHS))


def budget_of(turn: Turn, engine: Engine) -> int:
    """Tokens that the step of a turn may compute."""
    wanted = turn.budget * engine.sizes.scheduler_block // SIXTEENTHS
    return max(1, min(wanted or engine.batched_tokens, engine.batched_tokens))
