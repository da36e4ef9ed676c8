"""From what was asked to a campaign that can run: addresses resolved, the canary chosen, the lanes' kind."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.canary import canary_launch, canary_of
from fuzz.campaign.crew import MakeLane
from fuzz.campaign.engine import Order
from fuzz.campaign.journal import Asking, Journal
from fuzz.campaign.lane import Setup
from fuzz.campaign.process import LaneLike, LaneProcess
from fuzz.planners.trees import open_launch, read_config
from oracles.case import Case


def order_of(
    asking: Asking, corpus: tuple[Case, ...], journal: Journal, *, case_seconds: float, memory: int, ray: str | None
) -> Order:
    """A campaign over lanes on this machine, or over those of a Ray cluster.

    Raises:
        AddressError, FetchError: a planner cannot be resolved.
        PlannerError: there is no such cluster.
    """
    canary = canary_of(asking.seed) if asking.canary else ""
    make_lane: MakeLane
    if ray is not None:
        from fuzz.campaign.cluster import cluster_lanes

        make_lane = cluster_lanes(ray, asking, canary, case_seconds=case_seconds, memory=memory)
    else:
        make_lane = _local_lanes(asking, canary, journal, case_seconds, memory)
    return Order(asking=asking, corpus=corpus, canary=canary, make_lane=make_lane)


def _local_lanes(asking: Asking, canary: str, journal: Journal, case_seconds: float, memory: int) -> MakeLane:
    config = read_config(Path.cwd())
    unpatched, patched = open_launch(asking.unpatched, config), open_launch(asking.patched, config)

    def make_lane(number: int) -> LaneLike:
        return LaneProcess(
            Setup(
                lane=number,
                unpatched=unpatched,
                patched=patched,
                contract=asking.contract,
                case_seconds=case_seconds,
                memory=memory,
                samples=asking.twins,
                requests=asking.requests,
                canary=canary_launch(patched, canary) if canary and number == 0 else None,
                in_flight=str(journal.cases_folder),
            )
        )

    return make_lane
