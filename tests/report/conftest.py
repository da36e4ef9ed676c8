"""A campaign over real planners, told to consumers; its summary, and both plans of each finding."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest
from msgspec import Struct, structs

from fuzz.campaign import Event, Order, Witness, run
from fuzz.campaign.journal import Asking, Journal
from fuzz.campaign.lane import Setup
from fuzz.campaign.process import LaneProcess
from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.known import Known, KnownFindings
from fuzz.pair import Pair
from fuzz.planners.process import MEMORY_BYTES, Planner
from fuzz.planners.trees import Config, open_launch
from fuzz.report.details import Detail, details_for
from fuzz.report.summary import Gathering, Summary
from fuzz.store import Store
from oracles.case import Case, build_case, case_id

FIXED = "examples/mla-and-window-draft.block-outer"
"""The unpatched planner alone splits the target's layers (G6)."""

OVERLAID = "regress/groups-of-two-strides-overlay"
"""Both planners let two groups share bytes (M5); known here."""

OVERCLAIMED = "regress/claim-counts-the-null-block"
"""Both planners claim too much (C3); not known here, so it needs attention."""

M5_KNOWN = Known(fingerprint="b12f48fe", reason="two strides <b>overlay</b>", expires=datetime.date(2099, 1, 1))

HOSTILE_NAMES = (
    "</title><script>alert(1)</script>",
    '`|](x) *a* ![i](http://e/p) @all ]]> "><img src=x onerror=y>&lt;',
)


class Told(Struct, frozen=True):
    """What a campaign said, and where it left its cases."""

    events: tuple[Event, ...]
    store: Store


def corpus_case(name: str) -> Case:
    """A case of the corpus."""
    return read_case(corpus_folder() / f"{name}.json")


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """A campaign that asks the three cases above and no other."""
    before, after = open_launch("installed", Config()), open_launch("installed+isolate", Config())
    store = Store(tmp_path_factory.mktemp("store"))
    asking = Asking(
        unpatched=before.address, patched=after.address, contract="isolate", seed=7, seconds=None, cases=0,
        corpus=True, twins=False, canary=False, requests=False, gate=False, jobs=1,
    )  # fmt: skip
    setup = Setup(
        lane=0, unpatched=before, patched=after, contract="isolate", case_seconds=20.0, memory=MEMORY_BYTES,
        samples=False, requests=False, canary=None,
    )  # fmt: skip
    order = Order(
        asking=asking,
        corpus=tuple(map(corpus_case, (FIXED, OVERLAID, OVERCLAIMED))),
        canary="",
        make_lane=lambda number: LaneProcess(structs.replace(setup, lane=number)),
    )
    events = run(order, store, KnownFindings([M5_KNOWN]), Journal.new(store, asking.seed))
    return Told(tuple(events), store)


@pytest.fixture(scope="session")
def summary(told: Told) -> Summary:
    """The campaign's summary."""
    return gathered(told.events)


@pytest.fixture(scope="session")
def pair(unpatched: Planner, patched: Planner) -> Pair:
    """The planners that the session shares, as a pair."""
    return Pair.of(unpatched, patched, "isolate")


@pytest.fixture(scope="session")
def details(pair: Pair, told: Told, summary: Summary) -> dict[str, Detail]:
    """Both plans of each finding."""
    return details_for(pair, summary.findings, told.store)


@pytest.fixture(scope="session")
def hostile(pair: Pair, summary: Summary) -> tuple[Summary, dict[str, Detail]]:
    """The same summary with a first finding whose layers and sentence are out to break the report."""
    plain = corpus_case(OVERLAID)
    case = build_case(
        [
            (structs.replace(layer, name=name), plain.spec_of(layer))
            for layer, name in zip(plain.layers, HOSTILE_NAMES, strict=True)
        ],
        plain.settings,
    )
    judged = pair.ask(case)
    witness = Witness(
        id=case_id(case), fingerprint="00000000", law="M5", verdict="regression", planner="patched",
        summary=" and ".join(HOSTILE_NAMES) + " \x1b[31m\x00\u202etxet\ud800\nsecond line", case="/a|`b`.json",
        first_difference="placement[]<i>", layers=2,
    )  # fmt: skip
    return structs.replace(summary, findings=(witness, *summary.findings)), {
        witness.id: Detail(case=case, unpatched=judged.unpatched, patched=judged.patched)
    }


def gathered(events: Sequence[object]) -> Summary:
    """What a consumer makes of events."""
    gathering = Gathering()
    for event in events:
        gathering.take(event)
    return gathering.summary()
