"""The pairs of features that the strategies claim to reach, and how often a run reached them.

The claim is a product of a few dimensions less what cannot be (a layer-outer layout never packs) and less what is
so rare that a thousand cases may miss it; both are named here. A test holds three thousand cases of a fixed seed to it.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Iterable

from fuzz.strategies.features import Features, Pair

KINDS = (
    "chunked_local", "circular_buffer", "cross", "full", "hidden_state", "mamba", "mla", "rswa", "sink",
    "sliding_window", "sliding_window_mla",
)  # fmt: skip
"""Every kind but ``encoder_only``, which a planner's registry refuses. Sorted, as pairs are."""

DRAFT_KINDS = ("chunked_local", "cross", "full", "mla", "rswa", "sink", "sliding_window", "sliding_window_mla")
"""Draft kinds that are claimed. Recurrent drafts are drawn as well, but no fixed number of cases promises them."""

LAYOUTS = ("layer_outer", "block_outer", "heads_outside")
UNEQUAL = ("byte_off", "token_off", "uneven", "multiple", "divides")
"""Relations of pages of different sizes."""


@functools.cache
def claimed() -> tuple[Pair, ...]:
    """Every pair that is claimed, in a fixed order."""
    return tuple(dict.fromkeys((*_kinds(), *_pages(), *_branches(), *_pipelines())))


def missing(seen: Iterable[Features]) -> tuple[Pair, ...]:
    """What is claimed and was not seen."""
    reached = {pair for one in set(seen) for pair in one.pairs()}
    return tuple(pair for pair in claimed() if pair not in reached)


def count_pairs(seen: Iterable[Features]) -> Counter[Pair]:
    """How many cases showed each pair."""
    return Counter(pair for one in seen for pair in set(one.pairs()))


def _product(dimension: str, ones: Iterable[str], others: Iterable[str]) -> list[Pair]:
    return [(dimension, one, other) for one, other in itertools.product(ones, others)]


def _kinds() -> list[Pair]:
    """Any two kinds in one target, every draft beside every target, every kind in every mode it can have."""
    attention = [kind for kind in KINDS if kind != "mamba"]
    return [
        *(("target×target", one, other) for one, other in itertools.combinations(KINDS, 2)),
        *_product("target×draft", KINDS, DRAFT_KINDS),
        *_product("target×modes", attention, ("sharded", "replicated", "sharded+recurrent", "mixed")),
        *_product("target×modes", ("mamba",), ("recurrent", "sharded+recurrent", "mixed")),
        *_product("draft×layout", DRAFT_KINDS, LAYOUTS),
        *_product("draft×pages", ("full", "mla", "sliding_window"), (*UNEQUAL, "equal", "padded")),
        *_product("draft×pages", ("chunked_local", "sliding_window_mla"), ("byte_off", "uneven", "divides", "padded")),
        *_product("target×branch", KINDS, ("packed", "equal_pages", "raised_pages", "not_convertible")),
    ]


def _pages() -> list[Pair]:
    """Every page relation under every layout that can meet it, and in every mode but recurrent alone.

    Unequal pages under a layout with heads outside the blocks are refused by the guard, so they are forced; a
    block-outer layout is never refused, so it is never forced.
    """
    return [
        *_product("pages×layout", (*UNEQUAL, "equal", "padded", "alone"), ("layer_outer", "block_outer")),
        *_product("pages×layout", ("equal", "alone"), ("heads_outside",)),
        *_product("pages×layout", ("byte_off", "uneven", "divides", "padded"), ("heads_outside forced",)),
        *_product("pages×layout", ("byte_off", "uneven", "divides"), ("layer_outer forced",)),
        *_product("pages×modes", (*UNEQUAL, "equal", "padded"), ("sharded", "mixed")),
        *_product("pages×modes", ("byte_off", "uneven", "divides", "equal", "padded"), ("sharded+recurrent",)),
        *_product("pages×modes", ("byte_off", "uneven", "divides", "equal", "padded"), ("replicated",)),
    ]


def _branches() -> list[Pair]:
    """Every branch with every mode and layout that lead to it."""
    whole, plain = ("sharded", "replicated"), ("sharded", "mixed", "sharded+recurrent")
    return [
        *_product("branch×modes", ("one_spec",), (*whole, "recurrent")),
        *_product("branch×modes", ("one_type",), whole),
        *_product("branch×modes", ("converted",), ("sharded",)),
        *_product("branch×modes", ("packed", "raised_pages"), (*plain, "replicated")),
        *_product("branch×modes", ("equal_pages",), (*plain, "replicated")),
        *_product("branch×modes", ("not_divisible", "not_convertible"), plain),
        *_product("branch×modes", ("packed_repeats", "full_fallback"), ("sharded", "mixed")),
        *_product("branch×layout", ("no_layers", "one_spec", "one_type", "equal_pages", "converted"), LAYOUTS),
        *_product("branch×layout", ("packed", "packed_repeats"), ("block_outer", "heads_outside")),
        *_product("branch×layout", ("raised_pages", "not_divisible"), ("layer_outer", "heads_outside")),
        *_product("branch×layout", ("full_fallback",), ("layer_outer",)),
        *_product("branch×layout", ("not_convertible",), LAYOUTS),
        *_product("branch×pages", ("packed", "raised_pages", "not_convertible"), ("uneven", "byte_off", "divides")),
        *_product("branch×pages", ("packed", "raised_pages"), ("token_off", "multiple", "padded")),
        *_product("branch×pages", ("equal_pages",), ("equal", "padded")),
        *_product("branch×pages", ("not_divisible", "packed_repeats", "one_type"), ("uneven",)),
        *_product("dcp×branch", ("split", "whole"), (
            "no_layers", "one_spec", "one_type", "packed", "packed_repeats", "equal_pages", "raised_pages",
            "full_fallback", "not_divisible", "converted", "not_convertible",
        )),
    ]  # fmt: skip


def _pipelines() -> list[Pair]:
    """Every pipeline shape with the branches that plan, and under every layout."""
    split = ("even", "lacks_kind", "draft_alone")
    return [
        *_product("branch×pipeline", ("packed", "equal_pages", "raised_pages"), ("one_stage", *split)),
        *_product("branch×pipeline", ("packed_repeats", "not_divisible"), ("one_stage", "lacks_kind", "draft_alone")),
        *_product("branch×pipeline", ("one_spec", "one_type", "converted"), ("one_stage", "even")),
        *_product("branch×pipeline", ("packed",), ("empty_stage",)),
        *_product("pipeline×layout", ("one_stage", *split, "empty_stage"), LAYOUTS),
    ]
