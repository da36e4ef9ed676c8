"""A pair of planners that is asked what one finding needs: its law's second answers every time, no others.

A campaign asks for second answers of a sample only, in turn; a minimiser that did so would take a case for passing
because it was not asked, and so would somebody who asks a case again.
"""

from __future__ import annotations

from fuzz.pair import EXTRAS, SERVE, TWICE, VIEWS, Pair
from fuzz.replay.requests.checks import CHECKS
from oracles.derived import MORE_MEMORY, PERMUTED, RENAMED, WIDER_DCP

NEEDED: dict[str, frozenset[str]] = {
    "G8": frozenset({RENAMED}), "G9": frozenset({TWICE}), "G11": frozenset({PERMUTED}), "G13": frozenset({WIDER_DCP}),
    "C5": frozenset({MORE_MEMORY, WIDER_DCP}), "P7": frozenset({VIEWS}),
}  # fmt: skip
"""The second answers that a law is about. The checks of requests need theirs; other laws need none."""


class FocusedPair(Pair):
    """The planners of ``pair``, under its contract; ``law`` of None asks for everything."""

    def __init__(self, pair: Pair, law: str | None) -> None:
        # The processes are the pair's: they are warm, and the pair closes them.
        vars(self).update(vars(pair))
        by_family = frozenset({SERVE}) if law in CHECKS else frozenset()
        everything = EXTRAS if self.serves else EXTRAS - {SERVE}
        self._wanted = everything if law is None else NEEDED.get(law, by_family)

    def _extras(self) -> frozenset[str]:
        return self._wanted
