"""Minimising a finding: the least case that still shows it, and the nearest one that does not."""

from fuzz.minimise.neighbour import Variation
from fuzz.minimise.search import Better, Minimal, Minimiser, NotShown, Target, Unstable, minimise

__all__ = ["Better", "Minimal", "Minimiser", "NotShown", "Target", "Unstable", "Variation", "minimise"]
