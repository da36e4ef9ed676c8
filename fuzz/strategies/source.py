"""A *source* answers the generator's questions: how many, which one, whether.

One generator runs over two sources. ``RandomSource`` is fast and gives the same cases for a seed on every machine;
``HypothesisSource`` lets Hypothesis choose, so that a failing case shrinks. Every answer has a simplest value,
the low end, the first option, "no", and the generator is written so that simplest answers make the simplest case.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

T = TypeVar("T")


class Source(Protocol):
    """Where the generator's decisions come from."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included; simplest: ``low``."""

    def choice(self, options: Sequence[T]) -> T:
        """One of ``options``; simplest: the first. An option that stands twice is twice as likely."""

    def chance(self, percent: int) -> bool:
        """True in about ``percent`` of 100 draws; simplest: False."""

    def subset(self, options: Sequence[T], drop_percent: int) -> tuple[T, ...]:
        """Swarm flags: ``options`` in their order, each dropped with a chance of ``drop_percent``, never all.

        Simplest: all of them, so that a case opens up while it shrinks.
        """


def pick(source: Source, options: Sequence[T], enabled: Sequence[T]) -> T:
    """One of ``options`` that is also ``enabled`` (never empty).

    The draw is over all options, whatever is enabled: it costs the same and means the same while flags open up.
    """
    place = source.integer(0, len(options) - 1)
    wanted = options[place]
    return wanted if wanted in enabled else enabled[place % len(enabled)]


class RandomSource:
    """Decisions of a ``random.Random``.

    Only ``random()`` is called: the floats it gives for a seed are part of Python's documented promise, while the
    integers of ``randrange`` have changed between versions.
    """

    def __init__(self, generator: random.Random) -> None:
        self._next = generator.random

    def integer(self, low: int, high: int) -> int:
        return low + int(self._next() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        return options[int(self._next() * len(options))]

    def chance(self, percent: int) -> bool:
        return self._next() * 100 < percent

    def subset(self, options: Sequence[T], drop_percent: int) -> tuple[T, ...]:
        following = self._next
        kept = tuple(option for option in options if following() * 100 >= drop_percent)
        return kept or (options[int(following() * len(options))],)


class HypothesisSource:
    """Decisions of Hypothesis. Integers only: their draws shrink well and cost least."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        return low if low == high else self._draw(st.integers(low, high))

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return percent > 0 and self._draw(st.integers(0, 99)) >= 100 - percent

    def subset(self, options: Sequence[T], drop_percent: int) -> tuple[T, ...]:
        # One integer holds all flags, for each draw costs; a second one where more than half are dropped.
        dropped = self.integer(0, (1 << len(options)) - 1)
        if drop_percent > 50:
            dropped |= self.integer(0, (1 << len(options)) - 1)
        kept = tuple(option for at, option in enumerate(options) if not dropped >> at & 1)
        return kept or (options[self.integer(0, len(options) - 1)],)
