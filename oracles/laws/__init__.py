"""The laws, by subject. Importing this package registers them all, cheapest first."""

from oracles.law import LAWS, broken_laws
from oracles.laws import grouping, refusals, repetition

__all__ = ["LAWS", "broken_laws", "grouping", "refusals", "repetition"]
