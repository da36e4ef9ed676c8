"""A pair of planners that is asked what one finding needs: its law's second answers every time, no others.

A campaign asks for second answers of a sample only, in turn; a minimiser that did so would take a case for passing
because it was not asked.
"""

from __future__ import annotations

from fuzz.pair import Pair
from fuzz.planners.process import Question
from oracles.case import Case, is_mixed, replicated_part, sharded_part
from oracles.derived import DERIVED, MORE_MEMORY, PERMUTED, RENAMED, WIDER_DCP

FORMS: dict[str, tuple[str, ...]] = {
    "G8": (RENAMED,), "G11": (PERMUTED,), "G13": (WIDER_DCP,), "C5": (MORE_MEMORY, WIDER_DCP),
}  # fmt: skip
"""Derived forms that a law is about; other laws need none."""

REPETITION = "G9"


class FocusedPair(Pair):
    """The planners of ``pair``, under its contract; ``law`` of None asks for everything."""

    def __init__(self, pair: Pair, law: str | None) -> None:
        # The processes are the pair's: they are warm, and the pair closes them.
        vars(self).update(vars(pair))
        self._forms = tuple(DERIVED) if law is None else FORMS.get(law, ())
        self._twice = law in (None, REPETITION)

    def _questions(self, case: Case) -> dict[str, Question]:
        asked = {"case": Question(case, "all", self._twice)}
        if self.contract == "isolate" and is_mixed(case):
            asked["sharded"] = Question(sharded_part(case), "group")
            asked["replicated"] = Question(replicated_part(case), "group")
        return asked | {name: Question(DERIVED[name](case)) for name in self._forms}
