"""What follows a run: its gravest findings come with their least case."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.campaign.events import Finished, Minimised, Report, Witness
from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.minimise.after_run import with_minimal
from fuzz.pair import Pair
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import Config, open_launch
from fuzz.store import Store
from oracles.case import Layer, build_case, case_id

pytestmark = pytest.mark.slow

LOOKAHEAD = "ed51cfe8"


def ended_with(witness: Witness) -> Finished:
    return Finished(report=Report(
        run="20261203-000000-1", contract="isolate", seed=1, jobs=1, cases=1, corpus_cases=0, corpus_left_out=0,
        mutated=0, seconds=1.0,
        cases_per_second=1.0, planner_seconds=1.0, verdicts={}, inconclusive={}, planned_under_other_hash_seeds=0,
        pairs=1, branches=1, novelty=0.0, kept_cases=0, canary="", canary_caught_by="", lanes_lost=0,
        interrupted=False, timed=False, gate=False, findings=(witness,), known=(), unmatched=(), planners=(),
    ))  # fmt: skip


def test_a_finding_that_only_served_requests_show_is_minimised(tmp_path: Path) -> None:
    least = read_case(corpus_folder() / "requests/window-bill-forgets-the-lookahead.json")
    spec = least.specs[0]
    case = build_case([(Layer(name=f"model.layers.{at}", spec=0), spec) for at in range(3)], least.settings)
    store = Store(tmp_path)
    store.begin()
    before = Witness(
        id=case_id(case), fingerprint=LOOKAHEAD, law="Q10", verdict="unfixed", planner="patched", summary="short",
        first_difference="", case=str(store.keep_case(case)), layers=3,
    )  # fmt: skip

    def open_pair() -> Pair:
        unpatched, patched = (open_launch(address, Config()) for address in ("installed", "installed+isolate"))
        return Pair(unpatched, patched, "isolate", case_seconds=CASE_SECONDS, memory=MEMORY_BYTES)

    events = list(with_minimal([ended_with(before)], open_pair, store, lambda: False))
    assert [event.witness.layers for event in events if isinstance(event, Minimised)] == [1]
    assert isinstance(events[-1], Finished)
    (after,) = events[-1].report.findings
    assert "a pool of" in after.summary
    assert "not shown" not in after.summary
