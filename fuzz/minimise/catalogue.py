"""The catalogue: cases of one or two layers a few steps from plain that are less than the best, least first.

Passes go downhill from where they are, so that two searches for one fault may end in two valleys. Asking the plainest
cases outright at the end takes both to the same one.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from msgspec import structs

from fuzz.minimise.order import Key, order_key, plain_ranks
from fuzz.minimise.palette import Choice, kinds_and_modes, settings_like, specs_of
from oracles.case import Case, Layer, MambaSpec, Settings, Spec, build_case

COMMON = ("full", "sliding_window", "mla", "mamba")
"""Kinds that are tried whether or not the best case has them."""

MOST_STEPS = 2
"""Steps from plain that a case may take in all its specs and settings."""

MOST = {1: 1_000, 2: 4_000}
"""Cases by their number of layers, those of fewer steps first: the two planners answer about 700 in a second."""


def catalogue(case: Case, below: Key) -> Iterator[Case]:
    """Cases with less than ``below``, least first, for a search whose best case is ``case``."""
    settings = settings_like(case.settings)
    stock = [one for kind, mode in kinds_and_modes(case.specs, COMMON) for one in specs_of(kind, mode, MOST_STEPS)]
    drafts = any(layer.draft for layer in case.layers)
    for count in range(1, min(below[0], max(MOST)) + 1):
        offered = _combinations(stock, settings, count, below)
        ranked = heapq.nsmallest(MOST[count], offered, key=lambda row: row[0])
        made = (_of(tuple(one.value for one in specs), count, setting.value, drafts) for _, specs, setting in ranked)
        yield from sorted((one for one in made if order_key(one) < below), key=order_key)


Row = tuple[tuple[int, int, int, int, int], tuple[Choice[Spec], ...], Choice[Settings]]


def _combinations(
    stock: Sequence[Choice[Spec]], settings: Sequence[Choice[Settings]], count: int, below: Key
) -> Iterator[Row]:
    """Specs and settings within the steps allowed, with their steps and what their case's key begins with."""
    for specs in _spec_choices(stock, count):
        steps = sum(one.steps for one in specs)
        fields = sum(one.fields for one in specs)
        if (count, len(specs), fields) > below[:3]:
            continue
        ranks = plain_ranks(one.value for one in specs)
        plainness = sum(one.plainness for one in specs)
        numbers = sum(one.numbers for one in specs)
        for setting in settings:
            if steps + setting.steps <= MOST_STEPS:
                changed = fields + setting.fields + (setting.value.dcp != ranks)
                key = (len(specs), changed, plainness, numbers + setting.numbers)
                if (count, *key) <= below[:5]:
                    yield (steps + setting.steps, *key), specs, setting


def _spec_choices(stock: Sequence[Choice[Spec]], count: int) -> Iterator[tuple[Choice[Spec], ...]]:
    """One spec for all layers, or one for each, within the steps allowed."""
    yield from ((one,) for one in stock)
    if count == 1:
        return
    by_steps = [[one for one in stock if one.steps == steps] for steps in range(MOST_STEPS + 1)]
    for taken in itertools.product(range(MOST_STEPS + 1), repeat=count):
        if sum(taken) <= MOST_STEPS:
            choices = itertools.product(*(by_steps[steps] for steps in taken))
            yield from (specs for specs in choices if specs[0] is not specs[1])


def _of(specs: tuple[Spec, ...], count: int, settings: Settings, drafts: bool) -> Case:
    """Layers on the first and the last stage; the last one is the draft's where the best case has drafts."""
    last = count - 1
    rows = [
        (
            Layer(
                name=f"{'d' if at == last and drafts else 't'}.{0 if drafts else at}", spec=0,
                stage=settings.stages - 1 if at == last and last else 0, draft=at == last and drafts,
            ),
            spec,
        )
        for at, spec in enumerate(specs if len(specs) == count else specs * count)
    ]  # fmt: skip
    shortest = min((spec.block_size for spec in specs if isinstance(spec, MambaSpec)), default=settings.model_len)
    # A recurrent layer in its plainest mode holds a whole request in one block.
    return build_case(rows, structs.replace(settings, model_len=min(settings.model_len, shortest)))
