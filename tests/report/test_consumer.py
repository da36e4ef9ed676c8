"""Consumers: what they make of events, of those they do not know, and of a run that is cut off."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fuzz.campaign import Finished, Found
from fuzz.cli_common import Failure
from fuzz.report.choose import ReportSpec, open_consumers, parse_report, parse_reports
from fuzz.report.consumer import ReportError, closing, tee
from fuzz.report.details import details_for
from fuzz.report.summary import Summary, conclusion, visible
from fuzz.store import Store
from tests.report.conftest import Told, gathered


class Noting:
    """A consumer that notes what happens to it."""

    def __init__(self, problem: OSError | None = None) -> None:
        self.taken: list[object] = []
        self.closed = 0
        self._problem = problem

    def take(self, event: object) -> None:
        self.taken.append(event)

    def close(self) -> None:
        self.closed += 1
        if self._problem is not None:
            raise self._problem


def test_every_consumer_takes_every_event_before_it_goes_on() -> None:
    first, second = Noting(), Noting()
    passed = []
    for event in tee(["a", "b"], [first, second]):
        assert first.taken[-1] == second.taken[-1] == event
        passed.append(event)
    assert passed == ["a", "b"]


def test_an_interrupted_block_closes_the_consumers_and_stays_interrupted() -> None:
    first, second = Noting(OSError("disk full")), Noting()
    with pytest.raises(KeyboardInterrupt), closing([first, second]):
        raise KeyboardInterrupt
    assert (first.closed, second.closed) == (1, 1)


def test_a_report_that_cannot_be_written_costs_no_other() -> None:
    first, second = Noting(OSError("disk full")), Noting()
    with pytest.raises(ReportError, match="disk full"), closing([first, second]):
        pass
    assert second.closed == 1


def test_a_campaign_is_summed_up(summary: Summary) -> None:
    assert summary.complete
    assert summary.cases == 3
    assert (summary.verdicts["fixed"], summary.verdicts["unfixed"]) == (1, 2)
    assert {(w.law, w.fingerprint) for w in summary.open} == {("C3", "af7a567b")}
    assert {w.law for w in summary.fixed} == {"G6"}
    assert {(w.law, w.fingerprint) for w in summary.listed} == {("M5", "b12f48fe")}
    assert conclusion(summary) == "1 finding needs attention."


def test_unknown_events_change_nothing(told: Told, summary: Summary) -> None:
    assert gathered([object(), *told.events, "later"]) == summary


def test_a_cut_off_run_is_told_as_far_as_it_came(told: Told, summary: Summary) -> None:
    cut = gathered([event for event in told.events if not isinstance(event, Finished)])
    assert not cut.complete
    assert cut.cases == 3
    assert {w.fingerprint for w in cut.findings} == {w.fingerprint for w in summary.findings}
    assert conclusion(Summary(nothing_drawn=True)) == (
        "The run does not count: no case was drawn. Give it more with --time."
    )
    assert conclusion(Summary(nothing_drawn=True, cases=2)) == (
        "The run does not count: no case was drawn, the corpus took all the time. Give it more with --time."
    )
    assert conclusion(cut) == "Interrupted: 1 finding needs attention."


def test_a_run_that_told_nothing_has_a_summary() -> None:
    assert conclusion(gathered([])) == "Interrupted: No case was planned: nothing is known."


def test_details_are_the_plans_of_the_findings_cases(told: Told, summary: Summary, details: dict[str, Any]) -> None:
    assert set(details) == {w.id for w in summary.findings}
    assert len(details) == 3


def test_what_does_not_print_is_written_as_an_escape() -> None:
    assert visible("a\x1b[31m\u202eb\ud800\n\U000e0001") == "a\\x1b[31m\\u202eb\\ud800 \\U000e0001"


def test_reports_are_named_by_format_and_file(tmp_path: Path) -> None:
    assert parse_report(f"html={tmp_path}/new/out.html") == ReportSpec(format="html", path=tmp_path / "new/out.html")
    assert parse_report("markdown=-") == ReportSpec(format="markdown", path=None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pdf=x", "'pdf' is no format; choose one of html, junit, markdown, ndjson, sarif"),
        ("html", "names no file; write html=FILE"),
        ("html=", "names no file; write html=FILE"),
        ("sarif={folder}", "is a folder; name a file in it"),
        ("junit={folder}/plain/out.xml", "plain is no folder; choose another place"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_the_run(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "plain").write_text("")
    with pytest.raises(Failure) as caught:
        parse_report(text.format(folder=tmp_path))
    assert says in str(caught.value)
    assert caught.value.code == 2


def test_two_reports_may_not_share_a_file() -> None:
    with pytest.raises(Failure, match="another report goes there already"):
        parse_reports(["html=-", "junit=-"])


def test_all_formats_are_written_when_a_run_is_cut_off(told: Told, tmp_path: Path) -> None:
    specs = parse_reports(
        [f"{name}={tmp_path}/out.{name}" for name in ("html", "junit", "markdown", "ndjson", "sarif")]
    )
    consumers = open_consumers(specs, lambda _: {})
    with pytest.raises(KeyboardInterrupt), closing(consumers):
        _until_found(tee(told.events, consumers))
    assert {path.name for path in tmp_path.iterdir()} == {f"out.{spec.format}" for spec in specs}
    for name in ("html", "junit", "markdown"):
        assert "nterrupted" in (tmp_path / f"out.{name}").read_text()


def _until_found(events: Iterable[object]) -> None:
    for event in events:
        if isinstance(event, Found):
            raise KeyboardInterrupt


def test_a_device_is_written_to_and_not_replaced(told: Told, tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    (consumer,) = open_consumers(parse_reports([f"junit={link}"]), lambda _: {})
    consumer.close()
    assert link.is_symlink()


def test_a_lost_case_leaves_the_other_details(told: Told, summary: Summary, pair: Any, tmp_path: Path) -> None:
    kept = summary.findings[0].id
    store = Store(tmp_path)
    case = told.store.load(kept)
    assert case is not None
    store.keep_case(case)
    store.case_path(summary.findings[1].id).write_text("{")
    assert set(details_for(pair, summary.findings, store)) == {kept}
