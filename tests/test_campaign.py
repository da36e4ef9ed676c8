"""A campaign over real planners: what it counts, what it keeps, what it sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.campaign import Finished, Found, Plan, Report, run
from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.known import KnownFindings
from fuzz.pair import Pair
from fuzz.planners.process import MEMORY_BYTES
from fuzz.planners.trees import Config, open_launch
from fuzz.store import Store
from oracles.case import case_id
from tests.models import dense, split_by_draft

OVERLAYS = Path(__file__).parent / "planners" / "overlays"


def campaign(folder: Path, patched: str, plan: Plan, unpatched: str = "installed") -> Report:
    """The report of one campaign under the contract ``isolate``."""
    before, after = open_launch(unpatched, Config()), open_launch(patched, Config())
    pair = Pair(before, after, "isolate", case_seconds=20.0, memory=MEMORY_BYTES)
    try:
        events = list(run(pair, plan, Store(folder), KnownFindings([])))
    finally:
        pair.close()
    found = [event.witness for event in events if isinstance(event, Found)]
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert len(found) == len(finished.report.findings)
    return finished.report


def test_the_smallest_witness_of_a_fault_is_kept(tmp_path: Path) -> None:
    plan = Plan(seed=1, cases=150, corpus=(split_by_draft(), dense()), twins=False)
    report = campaign(tmp_path, "installed+isolate", plan)
    assert report.cases == 152
    assert report.corpus_cases == 2
    split = next(w for w in report.findings if w.first_difference == "sharded.groups.count")
    assert (split.law, split.planner, split.verdict) == ("G6", "unpatched", "fixed")
    assert split.layers < len(split_by_draft().layers), "a smaller one was drawn after the corpus"
    for witness in report.findings:
        assert case_id(read_case(Path(witness.case))) == witness.id
    kept = {path.stem for path in (tmp_path / "cases").iterdir()}
    assert kept == {witness.id for witness in report.findings}, "cases of larger witnesses are dropped"


@pytest.mark.slow
def test_an_order_that_follows_the_hash_seed_is_seen(tmp_path: Path) -> None:
    patched = f"installed+isolate+{OVERLAYS / 'by_hash.py'}"
    report = campaign(tmp_path, patched, Plan(seed=1, cases=64))
    assert report.planned_under_other_hash_seeds == 4
    assert "G9" in {w.law for w in report.findings if w.verdict == "regression"}


@pytest.mark.slow
def test_a_planner_compared_with_itself_shows_no_difference(tmp_path: Path) -> None:
    report = campaign(tmp_path, "installed+isolate", Plan(seed=2, cases=600), unpatched="installed+isolate")
    assert {w.verdict for w in report.findings} <= {"unfixed"}, "only faults that both have"
    assert not {w.law for w in report.findings} & {"G6", "G7", "G9"}


def test_both_symptoms_of_the_design_are_fixed_by_the_patch(tmp_path: Path) -> None:
    names = ("mla-and-window-draft.layer-outer", "mla-mamba-and-wide-block-draft.layer-outer")
    corpus = tuple(read_case(corpus_folder() / "examples" / f"{name}.json") for name in names)
    report = campaign(tmp_path, "installed+isolate", Plan(seed=0, cases=0, corpus=corpus, twins=False))
    told = {w.summary for w in report.findings if (w.law, w.verdict, w.planner) == ("G6", "fixed", "unpatched")}
    assert told == {
        "the 4 sharded layers come in 2 groups beside the replicated ones, alone in 1 group",
        "refused together (NotImplementedError: Layer target.0: page size is not divisible by the maximum page size "
        "and cannot be padded. Padding is only supported for non-MLA attention layers.), although each part plans "
        "alone",
    }
