"""A campaign over a Ray cluster of two nodes on this machine, one of which is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from fuzz.campaign import Event, Finished, Found, LaneLost, Progressed, run
from fuzz.campaign.journal import Journal
from fuzz.campaign.start import Means, open_launches, order_of
from fuzz.known import KnownFindings
from fuzz.planners.process import MEMORY_BYTES
from fuzz.planners.trees import Config
from fuzz.store import Store
from tests.test_campaign import ASKING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

CASES = 4800


@pytest.fixture
def cluster() -> Iterator[tuple[Any, Any]]:
    """A cluster, and the second of its two nodes; one core each, so that each has one lane."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'kvfuzz[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made, second
    ray.shutdown()
    made.shutdown()


def test_a_node_that_goes_away_costs_only_its_cases_in_flight(tmp_path: Path, cluster: tuple[Any, Any]) -> None:
    nodes, second = cluster
    store = Store(tmp_path)
    asking = structs.replace(ASKING, seed=9, cases=CASES, jobs=2)
    journal = Journal.new(store, asking.seed)
    order = order_of(
        asking, open_launches(asking, Config()), (), journal,
        Means(case_seconds=20.0, memory=MEMORY_BYTES, ray=nodes.address),
    )  # fmt: skip
    events: list[Event] = []
    removed = False
    for event in run(order, store, KnownFindings([]), journal):
        events.append(event)
        if isinstance(event, Progressed) and event.cases >= CASES // 4 and not removed:
            nodes.remove_node(second)
            removed = True
    finished = events[-1]
    assert isinstance(finished, Finished)
    report = finished.report
    assert [event for event in events if isinstance(event, LaneLost)], "its lane was lost"
    assert report.cases == CASES
    assert sum(report.verdicts.values()) == CASES
    told = {event.witness.fingerprint for event in events if isinstance(event, Found)}
    assert told == {witness.fingerprint for witness in report.findings}
