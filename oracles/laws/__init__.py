"""The laws, by subject. Importing this package registers them all, cheapest first."""

from oracles.law import LAWS, broken_laws

from oracles.laws import grouping, facts, refusals, repetition, sizes, capacity, placement, derived  # isort: skip

__all__ = [
    "LAWS", "broken_laws", "capacity", "derived", "facts", "grouping", "placement", "refusals", "repetition", "sizes",
]  # fmt: skip
