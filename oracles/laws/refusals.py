"""Laws of refusals: how a planner says no."""

from __future__ import annotations

from collections.abc import Iterator

from oracles.compare import planner_function
from oracles.law import TYPED_REFUSALS, Breach, Evidence, law
from oracles.plan import Refused


@law("R1", applies=lambda e: isinstance(e.outcome, Refused))
def refusals_name_their_cause(evidence: Evidence) -> Iterator[Breach]:
    """A refusal is a ValueError or NotImplementedError that names the cause.

    A bare AssertionError, KeyError or ZeroDivisionError tells an operator nothing, and shows a state that the
    planner did not foresee.
    """
    assert isinstance(evidence.outcome, Refused)
    for refusal in evidence.outcome.refusals:
        if refusal.type in TYPED_REFUSALS and refusal.message.strip():
            continue
        where = planner_function(refusal.frames)
        message = refusal.message.strip().splitlines()[0][:160] if refusal.message.strip() else "without a message"
        at = f" in {where}" if where else ""
        yield Breach(
            law="R1", path=f"refusal.{refusal.stage}", error=refusal.type, frame=where,
            detail=f"refused to {refusal.stage} with a bare {refusal.type}{at}: {message}",
        )  # fmt: skip
        return
