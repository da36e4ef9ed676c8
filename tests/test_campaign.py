"""A campaign over real planners: what it counts, what it keeps, what it sees."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from fuzz.campaign import BATCH, CanaryCaught, Event, Finished, Found, Report, run
from fuzz.campaign.canary import canary_names
from fuzz.campaign.journal import Asking, Journal, ResumeError, State, load_state
from fuzz.campaign.start import Means, open_launches, order_of
from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.known import Known, KnownFindings
from fuzz.planners.process import MEMORY_BYTES
from fuzz.planners.trees import Config
from fuzz.store import Store
from oracles.case import Case, case_id
from tests.models import dense, split_by_draft

OVERLAYS = Path(__file__).parent / "planners" / "overlays"
STATE = Path(__file__).parent / "formats" / "1" / "state.json"

ASKING = Asking(
    unpatched="installed", patched="installed+isolate", contract="isolate", seed=1, seconds=None, cases=0,
    corpus=True, twins=False, canary=False, requests=False, gate=False, jobs=1,
)  # fmt: skip


def events_of(
    folder: Path,
    asking: Asking,
    corpus: tuple[Case, ...] = (),
    known: KnownFindings | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> list[Event]:
    """What one campaign tells."""
    store = Store(folder)
    journal = Journal.new(store, asking.seed)
    order = order_of(
        asking, open_launches(asking, Config()), corpus, journal, Means(case_seconds=20.0, memory=MEMORY_BYTES)
    )
    return list(run(order, store, known or KnownFindings([]), journal, interrupted=interrupted))


def report_of(events: list[Event]) -> Report:
    """The report at the end."""
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished.report


def test_the_smallest_witness_of_a_fault_is_kept(tmp_path: Path) -> None:
    events = events_of(tmp_path, structs.replace(ASKING, cases=150), (split_by_draft(), dense()))
    report = report_of(events)
    assert report.cases == 152
    assert report.corpus_cases == 2
    assert len([event for event in events if isinstance(event, Found)]) == len(report.findings)
    split = next(w for w in report.findings if w.first_difference == "sharded.groups.count")
    assert (split.law, split.planner, split.verdict) == ("G6", "unpatched", "fixed")
    assert split.layers < len(split_by_draft().layers), "a smaller one was drawn after the corpus"
    for witness in report.findings:
        assert case_id(read_case(Path(witness.case))) == witness.id
    assert {(r.id, r.finding.fingerprint) for r in Store(tmp_path).records()} == {
        (w.id, w.fingerprint) for w in report.findings
    }


def test_a_short_time_is_shared_between_the_corpus_and_drawing(tmp_path: Path) -> None:
    asking = structs.replace(ASKING, seconds=4.0, cases=None)
    corpus = tuple(dense(f"model{at}.layers") for at in range(20_000))  # far more than there is time for
    report = report_of(events_of(tmp_path, asking, corpus, KnownFindings([GONE])))
    assert 0 < report.corpus_cases < report.cases, "a share of the time was for drawing"
    assert report.corpus_cases + report.corpus_left_out == len(corpus)
    assert not report.nothing_drawn
    assert report.unmatched == (), "a corpus that was asked in part proves no fault gone"
    state = load_state(next((tmp_path / "runs").glob("*")) / "state.json")
    assert state is not None
    assert state.corpus_batches == report.corpus_cases // BATCH


@pytest.mark.slow
def test_the_cases_and_findings_of_a_seed_do_not_depend_on_which_lane_is_faster(tmp_path: Path) -> None:
    asking = structs.replace(ASKING, cases=240, jobs=2)
    first, second = (report_of(events_of(tmp_path / name, asking, (dense(),))) for name in ("first", "second"))
    assert first.verdicts == second.verdicts
    assert first.mutated == second.mutated > 20
    told = [[(w.id, w.fingerprint, w.verdict, w.seen) for w in report.findings] for report in (first, second)]
    assert told[0] == told[1]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_order_that_follows_the_hash_seed_is_seen(tmp_path: Path, jobs: int) -> None:
    patched = f"installed+isolate+{OVERLAYS / 'by_hash.py'}"
    report = report_of(events_of(tmp_path, structs.replace(ASKING, patched=patched, cases=192, twins=True, jobs=jobs)))
    assert report.planned_under_other_hash_seeds == 12
    assert "G9" in {w.law for w in report.findings if w.verdict == "regression"}


@pytest.mark.slow
def test_a_planner_compared_with_itself_shows_no_difference(tmp_path: Path) -> None:
    asking = structs.replace(ASKING, unpatched="installed+isolate", seed=2, cases=600, jobs=2)
    report = report_of(events_of(tmp_path, asking))
    assert {w.verdict for w in report.findings} <= {"unfixed"}, "only faults that both have"
    assert not {w.law for w in report.findings} & {"G6", "G7", "G9"}


def test_both_symptoms_of_the_design_are_fixed_by_the_patch(tmp_path: Path) -> None:
    names = ("mla-and-window-draft.layer-outer", "mla-mamba-and-wide-block-draft.layer-outer")
    corpus = tuple(read_case(corpus_folder() / "examples" / f"{name}.json") for name in names)
    report = report_of(events_of(tmp_path, ASKING, corpus))
    told = {w.summary for w in report.findings if (w.law, w.verdict, w.planner) == ("G6", "fixed", "unpatched")}
    assert told == {
        "the 4 sharded layers come in 2 groups beside the replicated ones, alone in 1 group",
        "refused together (NotImplementedError: Layer target.0: page size is not divisible by the maximum page size "
        "and cannot be padded. Padding is only supported for non-MLA attention layers.), although each part plans "
        "alone",
    }


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3))
def test_every_canary_is_caught(tmp_path: Path, at: int) -> None:
    seed = next(seed for seed in range(3) if seed % len(canary_names()) == at)
    events = events_of(tmp_path, structs.replace(ASKING, seed=seed, cases=24, canary=True))
    report = report_of(events)
    assert (report.canary, report.canary_survived) == (canary_names()[at], False)
    assert [event.name for event in events if isinstance(event, CanaryCaught)] == [canary_names()[at]]
    assert report.canary_caught_by in {"G1", "M1", "M2", "M3", "M5", "C1"}


GONE = Known(
    fingerprint="0123abcd", reason="gone", expires=datetime.date(2030, 1, 1), case="regress/x.json",
    under=("0.32.0 isolate",),
)  # fmt: skip


def test_a_known_fault_that_its_case_no_longer_shows_fails_the_run(tmp_path: Path) -> None:
    report = report_of(events_of(tmp_path, ASKING, (dense(),), KnownFindings([GONE])))
    assert report.unmatched == (GONE,)
    assert report.failed


def test_what_a_tree_of_ones_own_no_longer_shows_is_not_gone_from_the_release(tmp_path: Path) -> None:
    overlay = tmp_path / "harmless.py"
    overlay.write_text("def apply(planner):\n    pass\n")
    asking = structs.replace(ASKING, patched=f"installed+isolate+{overlay}")
    assert report_of(events_of(tmp_path / "store", asking, (dense(),), KnownFindings([GONE]))).unmatched == ()


def test_an_interrupted_run_ends_in_order_and_can_be_resumed(tmp_path: Path) -> None:
    report = report_of(events_of(tmp_path, structs.replace(ASKING, cases=10_000), interrupted=lambda: True))
    assert report.interrupted
    journal, state = Journal.last_unfinished(Store(tmp_path))
    assert state.asking.cases == 10_000
    assert journal.in_flight() == []


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path, text: path.write_bytes(text[:-9]), "is damaged (Input data was truncated)"),
        (lambda path, _: path.write_text("{}"), "is damaged (Object missing required field `format`)"),
        (lambda path, _: path.write_bytes(b"\x00\xff"), "is damaged (JSON is malformed"),
        (lambda path, text: path.write_bytes(text.replace(b'"absorbed":', b'"absorbed":"a')), "is damaged ("),
        (lambda path, text: path.write_bytes(text.replace(b'"finished":', b'"finished":1,"x":')), "is damaged (Expect"),
        (lambda path, _: path.mkdir(), "cannot be read (Is a directory)"),
        (lambda path, _: path.symlink_to("/dev/zero"), "cannot be read (is no regular file)"),
        (lambda path, _: path.symlink_to("nowhere"), "cannot be read (No such file"),
    ],
    ids=["truncated", "empty", "binary", "a field", "a type", "folder", "device", "dangling"],
)
def test_a_damaged_state_is_named(tmp_path: Path, damage: Callable[[Path, bytes], object], words: str) -> None:
    path = tmp_path / "runs" / "20260101-000000-1" / "state.json"
    path.parent.mkdir(parents=True)
    text = msgspec.json.encode(msgspec.json.decode(STATE.read_bytes()))
    damage(path, text)
    with pytest.raises(ResumeError) as told:
        Journal.last_unfinished(Store(tmp_path))
    assert str(told.value).startswith(f"--resume: {path}: {words}")
    assert f"remove {path.parent}" in str(told.value)


def test_a_state_of_another_format_and_a_run_without_one_are_passed_over(tmp_path: Path) -> None:
    first, second, third = (tmp_path / "runs" / f"2026010{day}-000000-1" for day in (1, 2, 3))
    for folder in (first, second, third):
        folder.mkdir(parents=True)
    (second / "state.json").write_text('{"format":99}')
    with pytest.raises(ResumeError, match=r"holds no run .* that this kvfuzz reads \(.* is of another format"):
        Journal.last_unfinished(Store(tmp_path))
    state = structs.replace(msgspec.json.decode(STATE.read_bytes(), type=State), finished=False)
    (first / "state.json").write_bytes(msgspec.json.encode(state))
    assert Journal.last_unfinished(Store(tmp_path))[1] == state
