"""What a run tells, step by step. Reports are consumers of these; the engine knows none of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeVar

from msgspec import Meta, Struct

from fuzz.known import Known
from fuzz.pair import PlannerInfo
from fuzz.store import CASE_ID, FINGERPRINT
from oracles.compare import FAILING, sentence
from oracles.law import Contract

RANK = {name: place for place, name in enumerate(("regression", "dispute", "unfixed", "fixed"))}
"""The order in which findings are told."""

Told = TypeVar("Told", bound="Verdictful")


class Verdictful(Protocol):
    """A finding, with or without its case."""

    @property
    def fingerprint(self) -> str:
        """The fault."""

    @property
    def verdict(self) -> str:
        """The verdict on it."""


def gated(findings: Sequence[Told]) -> list[Told]:
    """What a gate fails for among all that was found: what the unpatched planner does not do.

    A regression, and a dispute over a fault that the unpatched planner shows nowhere: there it breaks something else
    before, which must not hide what is new. ``findings`` are those of the whole run.
    """
    shared = {one.fingerprint for one in findings if one.verdict == "unfixed"}
    return [
        one
        for one in findings
        if one.verdict == "regression" or (one.verdict == "dispute" and one.fingerprint not in shared)
    ]


class Witness(Struct, frozen=True, kw_only=True):
    """The smallest case seen so far for one fingerprint and verdict. ``case`` is the path of its file, ``layers`` and
    ``seen`` are counts, ``number`` tells in which order the faults came, ``beside`` what to know of the other planner.
    """

    id: Annotated[str, Meta(pattern=CASE_ID)]
    fingerprint: Annotated[str, Meta(pattern=FINGERPRINT)]
    law: str
    verdict: str
    planner: str
    summary: str
    first_difference: str
    case: str
    layers: int
    seen: int = 1
    known: bool = False
    number: int = 0
    beside: str = ""

    @property
    def sentence(self) -> str:
        """What happened, with what to know of the other planner."""
        return sentence(self.summary, self.beside)


class Started(Struct, frozen=True, kw_only=True, tag="started"):
    """The first pair of planners is up."""

    planners: tuple[PlannerInfo, ...]
    contract: Contract
    seed: int
    jobs: int
    run: str


class Resumed(Struct, frozen=True, kw_only=True, tag="resumed"):
    """A run goes on where it ended: what it had judged, and how many cases were in flight and are asked again."""

    cases: int
    findings: int
    in_flight: int


class Progressed(Struct, frozen=True, kw_only=True, tag="progressed"):
    """A batch was judged; all numbers are totals. ``novelty`` estimates how many pairs of features not seen
    yet the next case shows.
    """

    cases: int
    seconds: float
    verdicts: dict[str, int]
    planner_seconds: float
    distinct: int
    pairs: int
    branches: int
    novelty: float


class Found(Struct, frozen=True, kw_only=True, tag="found"):
    """A fault was seen for the first time."""

    witness: Witness


class CanaryCaught(Struct, frozen=True, kw_only=True, tag="canary"):
    """The planted defect was found: the run can find things."""

    name: str
    law: str
    cases: int


class LaneLost(Struct, frozen=True, kw_only=True, tag="lane_lost"):
    """A pair of planners went away with its process or its machine; what it had in flight is asked again."""

    lane: int
    cases: int
    reason: str


class Minimising(Struct, frozen=True, kw_only=True, tag="minimising"):
    """The gravest findings are about to be minimised, for at most so many seconds each."""

    findings: int
    seconds: float


class Minimised(Struct, frozen=True, kw_only=True, tag="minimised"):
    """The least case of a finding was found, after the run."""

    witness: Witness
    layers_before: int


class Report(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz run --json`` prints. ``corpus_left_out``: cases of the corpus that the time was too short for."""

    run: str
    contract: Contract
    seed: int
    jobs: int
    cases: int
    corpus_cases: int
    corpus_left_out: int
    mutated: int
    seconds: float
    cases_per_second: float
    planner_seconds: float
    verdicts: dict[str, int]
    inconclusive: dict[str, int]
    planned_under_other_hash_seeds: int
    pairs: int
    branches: int
    novelty: float
    kept_cases: int
    canary: str
    canary_caught_by: str
    lanes_lost: int
    interrupted: bool
    timed: bool
    gate: bool
    findings: tuple[Witness, ...]
    known: tuple[Known, ...]
    unmatched: tuple[Known, ...]
    planners: tuple[PlannerInfo, ...]

    @property
    def failed(self) -> bool:
        """Whether something needs attention: a finding that is not known, or a known fault that is gone. A gate minds
        only what is new (``gated``).
        """
        minded = gated(self.findings) if self.gate else [f for f in self.findings if f.verdict in FAILING]
        gone = bool(self.unmatched) and not self.gate
        return gone or any(not f.known for f in minded)

    @property
    def nothing_drawn(self) -> bool:
        """Whether a run for a time was over before a case was drawn: the corpus took all of it."""
        return self.timed and self.cases <= self.corpus_cases and not self.interrupted

    @property
    def canary_survived(self) -> bool:
        """Whether a defect was planted and not found: such a run says nothing."""
        return bool(self.canary) and not self.canary_caught_by and not self.interrupted


class Finished(Struct, frozen=True, kw_only=True, tag="finished"):
    """The run is over."""

    report: Report


Event = Started | Resumed | Progressed | Found | CanaryCaught | LaneLost | Minimising | Minimised | Finished
