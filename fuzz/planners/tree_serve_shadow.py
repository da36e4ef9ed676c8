"""What every block of the pool holds: which token of which text each slot was last written with.

A slot holds the *identity* of a token: a number that stands for the token and all before it, because that is what a
cached key depends on. Block ids are shared by all groups and pages lie over the same bytes, so a write by one group
destroys what another had in that block.

Ranks: under DCP token i of a block's span lies on rank ``i mod dcp`` in slot ``i ÷ dcp`` (a sharded cache), or on
every rank in slot i (a replicated one). Both are one to one, so one array of ``span`` identities per block says what
all ranks hold; which of the two a layer reads is its own spec's word, not its group's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from fuzz.planners.tree_serve_engine import SHIFTED_METHODS, Engine
from oracles.case import (
    ChunkedLocalSpec,
    CircularBufferSpec,
    CrossSpec,
    EncoderOnlySpec,
    FullSpec,
    MambaSpec,
    RSwaSpec,
    SlidingWindowSpec,
    Spec,
)

Identities = npt.NDArray[np.int64]
UNWRITTEN = -1
GARBAGE = -2
"""What a rejected draft token, or a drafter ahead of the target, leaves in a slot."""

MAX_CELLS = 48 * 2**20
"""Identities that all arrays of one pool may have together: 400 MB, a fifth of what a worker may grow by."""

Rule = Literal["full", "window", "chunk", "gap", "encoder", "ring", "state"]


class View(Struct, frozen=True, kw_only=True):
    """How some layers of a group read its blocks: span in tokens, which tokens are visible, what they hold.

    ``shifted``: a drafter's cache, which depends on the token after. ``draft``: a drafter writes ahead. ``led``: the
    group's manager follows another layer, which is done with blocks that these layers still read.
    """

    group: int
    span: int
    rule: Rule
    size: int = 0
    shifted: bool = False
    draft: bool = False
    led: bool = False

    @property
    def store(self) -> tuple[int, int, bool]:
        """Layers that agree in this hold the same in each slot."""
        return self.group, self.span, self.shifted

    def visible(self, start: int, prompt: int) -> list[tuple[int, int]]:
        """Ranges of tokens before ``start`` that a query from ``start`` on attends to."""
        if self.rule == "window":
            return [(max(0, start - self.size + 1), start)]
        if self.rule == "chunk":
            return [(start // self.size * self.size, start)]
        if self.rule == "gap":
            return [(0, min(prompt, start)), (max(prompt, start - self.size + 1), start)]
        return [(0, start)]


class StateView(Struct, frozen=True, kw_only=True):
    """A group of recurrent states: the mode they are kept in, the block size, blocks for drafts."""

    group: int
    mode: Literal["none", "align", "all"]
    block: int
    spare: int


def views_of(engine: Engine) -> tuple[list[View], list[StateView], list[int]]:
    """The distinct readers of the plan: attention, recurrent state, and the groups that are ring buffers."""
    speculative = engine.case.settings.speculative
    shifts = speculative is not None and speculative.method in SHIFTED_METHODS and engine.prefill_lookahead == 1
    views: dict[View, None] = {}
    states: dict[StateView, None] = {}
    rings: dict[int, None] = {}
    for group, draft, own, planned in engine.layers:
        if isinstance(own, EncoderOnlySpec):
            continue
        if isinstance(own, MambaSpec):
            assert isinstance(planned, MambaSpec)
            states[StateView(
                group=group, mode=own.mamba_cache_mode, block=planned.block_size, spare=own.num_speculative_blocks
            )] = None  # fmt: skip
            continue
        if isinstance(own, CircularBufferSpec):
            rings[group] = None
            continue
        rule, size = rule_of(own)
        views[View(
            group=group, span=engine.layer_span(own, planned), rule=rule, size=size, shifted=draft and shifts,
            draft=draft, led=is_led(own, engine.specs[group]),
        )] = None  # fmt: skip
    return list(views), list(states), list(rings)


def is_led(own: Spec, leader: Any) -> bool:
    """Whether ``leader``, the spec that stands for a wrapper group, forgets the middle of a text that ``own`` reads."""
    gap = getattr(leader, "rswa_window", None)
    return gap is not None and not (isinstance(own, RSwaSpec) and own.rswa_window <= gap)


def rule_of(spec: Spec) -> tuple[Rule, int]:
    """Which tokens a layer of this spec attends to."""
    if isinstance(spec, RSwaSpec):
        return "gap", spec.rswa_window
    if isinstance(spec, FullSpec):
        if spec.sliding_window:
            return "window", spec.sliding_window
        return ("chunk", spec.attention_chunk_size) if spec.attention_chunk_size else ("full", 0)
    if isinstance(spec, SlidingWindowSpec):
        return "window", spec.sliding_window
    if isinstance(spec, ChunkedLocalSpec):
        return "chunk", spec.attention_chunk_size
    assert isinstance(spec, CrossSpec)
    return "encoder", 0


class Shadow:
    """The contents of one pool."""

    def __init__(self, num_blocks: int, views: Sequence[View], state_groups: Sequence[int]) -> None:
        self.owner = np.full(num_blocks, -1, dtype=np.int64)
        stores = list(dict.fromkeys(view.store for view in views))
        self.slots: dict[tuple[int, int, bool], Identities] = {
            store: np.full((num_blocks, store[1]), UNWRITTEN, dtype=np.int64) for store in stores
        }
        self.states: dict[int, Identities] = {
            group: np.full(num_blocks, UNWRITTEN, dtype=np.int64) for group in state_groups
        }

    @staticmethod
    def cells(num_blocks: int, views: Sequence[View]) -> int:
        """Identities that a pool of ``num_blocks`` blocks takes."""
        return num_blocks * sum(span for _, span, _ in dict.fromkeys(view.store for view in views))

    def claim(self, group: int, blocks: npt.NDArray[np.int64]) -> None:
        """Marks ``blocks`` as written by ``group``; what other groups held there is lost."""
        fresh = blocks[self.owner[blocks] != group]
        if len(fresh):
            self.owner[fresh] = group
            for (owner, _, _), array in self.slots.items():
                if owner == group:
                    array[fresh] = UNWRITTEN
            if group in self.states:
                self.states[group][fresh] = UNWRITTEN

    def write(self, store: tuple[int, int, bool], table: Sequence[int], start: int, values: Identities) -> None:
        """Writes ``values`` at the tokens from ``start`` on, through a request's block table."""
        group, span, _ = store
        positions = np.arange(start, start + len(values))
        columns = positions // span
        inside = columns < len(table)  # what lies beyond the table is reported before, not written
        positions, values, columns = positions[inside], values[inside], columns[inside]
        blocks = np.asarray(table, dtype=np.int64)[columns]
        self.claim(group, np.unique(blocks))
        self.slots[store][blocks, positions % span] = values

    def holds(self, view: View, table: Sequence[int], start: int, end: int, wanted: Identities) -> int:
        """The first token of ``start:end`` whose slot does not hold its identity; -1 when all do."""
        if start >= end:
            return -1
        first, last = start // view.span, (end - 1) // view.span
        blocks = np.asarray(table[first : last + 1], dtype=np.int64)
        if len(blocks) <= last - first:
            return int((first + len(blocks)) * view.span)
        found = self.slots[view.store][blocks]
        found = np.where((self.owner[blocks] == view.group)[:, None], found, UNWRITTEN).reshape(-1)
        found = found[start - first * view.span : end - first * view.span]
        wrong = np.flatnonzero(found != wanted[start:end])
        return start + int(wrong[0]) if len(wrong) else -1

    def state(self, group: int, block: int) -> int:
        """The identity of the state in ``block``; UNWRITTEN when another group wrote there since."""
        return int(self.states[group][block]) if self.owner[block] == group else UNWRITTEN

    def put_state(self, group: int, block: int, value: int) -> None:
        """Writes a state."""
        self.claim(group, np.asarray([block]))
        self.states[group][block] = value

    def copy(self, source: int, target: int) -> None:
        """Copies a whole block, as the worker does before a step."""
        self.owner[target] = self.owner[source]
        for array in self.slots.values():
            array[target] = array[source]
        for states in self.states.values():
            states[target] = states[source]
