"""Hypothesis strategies for cases, and the same generator without Hypothesis for campaigns.

``cases()``, ``mixed_cases()`` and ``single_mode_cases()`` are for property tests; ``draw_case(random.Random(seed))``
gives some thousand cases a second. All promise: every case passes ``check_case`` and is valid input for the planners of
its vocabulary; no spec kind, setting or page relation is left out; the same seed gives the same cases everywhere.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from msgspec import structs

from fuzz.strategies.generator import draw_case, generate
from fuzz.strategies.memory import smallest_memory
from fuzz.strategies.source import HypothesisSource
from fuzz.strategies.vocabulary import Shape, Vocabulary, default_vocabulary, vocabulary_of
from oracles.case import Case

__all__ = [
    "Shape",
    "Vocabulary",
    "cases",
    "default_vocabulary",
    "draw_case",
    "mixed_cases",
    "single_mode_cases",
    "smallest_memory",
    "vocabulary_of",
]


@st.composite
def _drawn(draw: DrawFn, shape: Shape) -> Case:
    return generate(HypothesisSource(draw), shape)


def cases(shape: Shape | None = None) -> SearchStrategy[Case]:
    """Cases of every kind. Minimal: one full-attention layer under default settings."""
    return _drawn(shape or Shape())


def mixed_cases(shape: Shape | None = None) -> SearchStrategy[Case]:
    """Cases with replicated attention layers beside others: where the contract ``isolate`` splits."""
    return _drawn(structs.replace(shape or Shape(), modes="mixed"))


def single_mode_cases(shape: Shape | None = None) -> SearchStrategy[Case]:
    """Cases whose layers are all sharded or recurrent, or all replicated."""
    return _drawn(structs.replace(shape or Shape(), modes="single"))
