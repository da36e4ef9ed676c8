"""Planted defects, thirty and one that needs five layers, minimised from two cases each: how small, how soon, if alike.

``pytest -m long tests/minimise/test_planted.py -s`` prints the table behind the README's figures.
"""

from __future__ import annotations

import itertools
import statistics

import pytest

from fuzz.minimise import Minimal, minimise
from fuzz.pair import Pair
from fuzz.score.mutants import Mutant
from fuzz.strategies import Shape, vocabulary_of
from oracles.case import Case, canonical, case_id
from tests.minimise.planted import defects, pair_of, regressions

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

DEFECTS = 31

MEDIAN_LAYERS, MOST_LAYERS, MOST_SECONDS, SHARE_ALIKE = 3, 4, 20.0, 0.9

NEEDS_FIVE = {"contiguous_dealing"}
"""How layers are dealt to the groups of a type shows with two groups of a type, one of them of two layers: that takes
three layers of it, and two of another type, since the type of fewest layers gives a group's size.
"""


def planted() -> list[Mutant]:
    """The first of them: those modelled on a report come before the others."""
    return sorted(defects(), key=lambda mutant: (not mutant.report, mutant.name))[:DEFECTS]


def two_beginnings(pair: Pair, shape: Shape) -> tuple[str, Case, Case] | None:
    """A fault and two different cases that show it."""
    for one, other in zip(regressions(pair, shape, "one"), regressions(pair, shape, "other"), strict=True):
        for fingerprint in one:
            if fingerprint in other:
                return fingerprint, one[fingerprint], other[fingerprint]
    return None


def ends_of(mutant: Mutant) -> list[Minimal]:
    """Both ends; none when the defect was not met."""
    pair = pair_of(mutant)
    try:
        shape = Shape(vocabulary=vocabulary_of(*pair.start()))
        begun = two_beginnings(pair, shape)
        if begun is None:
            return []
        fingerprint, *cases = begun
        return [minimise(pair, case, fingerprint) for case in cases]
    finally:
        pair.close()


def test_planted_defects_end_small_soon_and_alike() -> None:
    layers: dict[str, list[int]] = {}
    seconds: list[float] = []
    alike = 0
    for mutant in planted():
        ends = ends_of(mutant)
        if not ends:
            print(f"{mutant.name:40} not met", flush=True)
            continue
        layers[mutant.name] = [len(end.case.layers) for end in ends]
        seconds += [end.seconds for end in ends]
        same = len({case_id(end.case) for end in ends}) == 1
        alike += same
        counts = " and ".join(map(str, layers[mutant.name]))
        times = " and ".join(f"{end.seconds:.1f}" for end in ends)
        print(
            f"{mutant.name:40} {ends[0].finding.law:16} {counts} layers in {times} s, {'alike' if same else 'APART'}",
            flush=True,
        )
        if not same:
            for end in ends:
                print("   ", canonical(end.case).decode(), flush=True)
    every = list(itertools.chain.from_iterable(layers.values()))
    print(f"{len(layers)} defects: at most {max(every)} layers, median {statistics.median(every):g}; ", end="")
    print(f"at most {max(seconds):.1f} s, median {statistics.median(seconds):.1f}; {alike} ended alike")
    assert statistics.median(every) <= MEDIAN_LAYERS
    small = {name for name, counts in layers.items() if max(counts) <= MOST_LAYERS}
    assert layers.keys() - small <= NEEDS_FIVE
    assert len(small) >= DEFECTS - 1
    assert max(seconds) <= MOST_SECONDS
    assert alike >= SHARE_ALIKE * len(layers)
