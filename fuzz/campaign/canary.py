"""A *canary*: the patched planner with a defect planted on top. A run that does not find it says nothing.

The canaries stand in ``fuzz/canaries``; runs take them in turn, by their seed. Each spoils a plan in another way, and
each can be seen by a law alone, so that a tree whose version has no rule set is no excuse.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from fuzz.pair import Pair
from fuzz.planners.process import Planner
from fuzz.planners.trees import Launch
from fuzz.strategies import Shape, draw_case
from oracles.case import Case
from oracles.law import Contract

FOLDER = Path(__file__).resolve().parents[1] / "canaries"

SHARE = 8
"""Cases of each batch that the canary is asked too. It costs as much as they do, until it is caught."""

HUNTED = 400
"""Cases drawn for a canary that is alive when the run ends; the slowest of them is caught by the twentieth."""


def canary_names() -> tuple[str, ...]:
    """The canaries, in the order in which runs take them."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_")))


def canary_of(seed: int) -> str:
    """The canary of a run."""
    names = canary_names()
    return names[seed % len(names)]


def canary_launch(patched: Launch, name: str) -> Launch:
    """The patched planner with the canary's defect."""
    return structs.replace(
        patched,
        address=f"{patched.address}+canary:{name}",
        overlays=(*patched.overlays, str(FOLDER / f"{name}.py")),
    )


COMPARISONS = frozenset({"G7"})
"""Laws that any difference between two planners breaks. Finding a canary by one would prove too little."""


class CanaryWatch:
    """Asks the spoilt planner beside the patched one until they differ where a law says which is wrong."""

    def __init__(self, patched: Planner, launch: Launch, contract: Contract) -> None:
        self._planner = Planner(launch, hash_seed=patched.hash_seed, memory=patched.memory)
        self._pair = Pair.of(patched, self._planner, contract)
        self._hello = self._planner.start()
        self._caught = False

    def look(self, cases: Sequence[Case]) -> tuple[str, int]:
        """(the law by which it was caught, cases asked); nothing is asked while it starts or once it is caught.

        Raises:
            PlannerError: it cannot be started, so the run cannot be trusted.
        """
        if self._caught or not self._hello.done():
            return "", 0
        self._hello.result()
        return self._ask(cases[:SHARE])

    def hunt(self, shape: Shape) -> tuple[str, int]:
        """Draws cases until it is caught, or enough are drawn. Raises PlannerError."""
        asked = 0
        self._hello.result()
        while not self._caught and asked < HUNTED:
            source = (random.Random(f"canary {asked + at}") for at in range(SHARE))
            law, count = self._ask([draw_case(one, shape) for one in source])
            asked += count
            if law:
                return law, asked
        return "", asked

    def _ask(self, cases: Sequence[Case]) -> tuple[str, int]:
        for at, judged in enumerate(self._pair.collect(self._pair.submit_in_turn(cases, 1))):
            for finding in judged.verdict.findings:
                if finding.verdict == "regression" and finding.law not in COMPARISONS:
                    self._caught = True
                    self._planner.close()
                    return finding.law, at + 1
        return "", len(cases)

    def close(self) -> None:
        """Ends its process."""
        self._planner.close()
