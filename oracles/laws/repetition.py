"""Laws of repetition: planning is a function of its inputs and leaves them alone."""

from __future__ import annotations

from collections.abc import Iterator

from oracles.compare import outcome_difference
from oracles.law import Breach, Evidence, law
from oracles.plan import Planned, Refused


@law("G9", applies=lambda e: e.second is not None or e.twin is not None)
def planning_again_gives_the_same(evidence: Evidence) -> Iterator[Breach]:
    """Planning twice, and in another process with another hash seed, gives the same plan.

    Workers and scheduler plan by themselves; if they disagree, one writes where the other does not read.
    """
    for how, other in (("again", evidence.second), ("under another hash seed", evidence.twin)):
        if not isinstance(other, Planned | Refused):
            continue
        found = outcome_difference(evidence.outcome, other)
        if found is not None:
            yield Breach(
                law="G9", path=found.path,
                detail=f"planning {how} changes {found.path} from {found.expected} to {found.obtained}",
            )  # fmt: skip
            return


@law("G10", applies=lambda e: bool(e.changed))
def inputs_are_left_alone(evidence: Evidence) -> Iterator[Breach]:
    """Planning does not alter the layer specs or the settings it is given.

    The same objects are used again for profiling, for other workers and by the attention backends.
    """
    for path in evidence.changed[:1]:
        yield Breach(law="G10", path=path, detail=f"planning altered its input: {', '.join(evidence.changed)}")
