"""Deals layers to pipeline stages: evenly, by kind, with the draft alone, with nothing."""

from __future__ import annotations

from collections.abc import Sequence

from fuzz.strategies.source import Source


def draw_stages(source: Source, order: Sequence[int], drafts: Sequence[bool]) -> tuple[list[int], int]:
    """(the stage of each layer, the number of stages). ``order`` tells which spec each layer uses."""
    count = len(order)
    if count == 0 or not source.chance(33):
        return [0] * count, 1
    # Seldom a stage with nothing: releases up to 0.33 divide by zero there, and a few witnesses are enough.
    deal = _empty if source.chance(4) else source.choice((_even, _cut, _by_spec, _draft_alone))
    return deal(source, order, drafts)


def _even(source: Source, order: Sequence[int], _drafts: Sequence[bool]) -> tuple[list[int], int]:
    stages = min(source.choice((2, 4, 3, 8)), len(order))
    return [at * stages // len(order) for at in range(len(order))], stages


def _cut(source: Source, order: Sequence[int], _drafts: Sequence[bool]) -> tuple[list[int], int]:
    """One cut anywhere: the usual off-by-one splits, and a stage of one layer."""
    cut = source.integer(1, max(1, len(order) - 1))
    return [int(at >= cut) for at in range(len(order))], min(2, len(order))


def _by_spec(source: Source, order: Sequence[int], drafts: Sequence[bool]) -> tuple[list[int], int]:
    """The first spec's layers on one stage, all others on the next: each stage lacks a kind."""
    if len(set(order)) == 1:
        return _even(source, order, drafts)
    return [int(spec != order[0]) for spec in order], 2


def _draft_alone(source: Source, order: Sequence[int], drafts: Sequence[bool]) -> tuple[list[int], int]:
    if not any(drafts):
        return _even(source, order, drafts)
    return [int(draft) for draft in drafts], 2


def _empty(source: Source, order: Sequence[int], _drafts: Sequence[bool]) -> tuple[list[int], int]:
    """One stage of three has no layer with a cache."""
    hole = source.integer(0, 2)
    first, second = (stage for stage in range(3) if stage != hole)
    return [first if at * 2 < len(order) else second for at in range(len(order))], 3
