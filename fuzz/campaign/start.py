"""From what was asked to a campaign that can run: the canary chosen, the lanes' kind and what each is made of."""

from __future__ import annotations

from msgspec import Struct

from fuzz.campaign.canary import canary_launch, canary_of
from fuzz.campaign.crew import MakeLane
from fuzz.campaign.engine import Order
from fuzz.campaign.journal import Asking, Journal
from fuzz.campaign.lane import Setup
from fuzz.campaign.process import LaneLike, LaneProcess
from fuzz.planners.trees import Config, Launch, open_launch
from oracles.case import Case


class Means(Struct, frozen=True, kw_only=True):
    """With what a run goes to work: seconds a planner has for a case, bytes a worker may grow by, the address of a Ray
    cluster (None: lanes on this machine).
    """

    case_seconds: float
    memory: int
    ray: str | None = None


def open_launches(asking: Asking, config: Config) -> tuple[Launch, Launch]:
    """Both planners, resolved. Raises AddressError and FetchError."""
    return open_launch(asking.unpatched, config), open_launch(asking.patched, config)


def order_of(
    asking: Asking, launches: tuple[Launch, Launch], corpus: tuple[Case, ...], journal: Journal, means: Means
) -> Order:
    """A campaign over lanes on this machine, or over those of a Ray cluster.

    Raises:
        PlannerError: there is no such cluster.
    """
    canary = canary_of(asking.seed) if asking.canary else ""
    make_lane: MakeLane
    if means.ray is not None:
        from fuzz.campaign.cluster import cluster_lanes

        make_lane = cluster_lanes(means.ray, asking, canary, means)
    else:

        def make_lane(number: int) -> LaneLike:
            in_flight = str(journal.cases_folder)
            return LaneProcess(setup_of(number, asking, launches, canary, means, in_flight))

    return Order(asking=asking, corpus=corpus, canary=canary, make_lane=make_lane)


def setup_of(
    number: int, asking: Asking, launches: tuple[Launch, Launch], canary: str, means: Means, in_flight: str
) -> Setup:
    """What lane ``number`` is made of; lane 0 has the canary."""
    unpatched, patched = launches
    return Setup(
        lane=number, unpatched=unpatched, patched=patched, contract=asking.contract,
        case_seconds=means.case_seconds, memory=means.memory, samples=asking.twins, requests=asking.requests,
        canary=canary_launch(patched, canary) if canary and number == 0 else None, in_flight=in_flight,
    )  # fmt: skip
