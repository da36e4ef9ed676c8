"""What a gate fails for."""

from __future__ import annotations

import pytest

from fuzz.campaign.events import Witness, gated
from fuzz.known import KnownFindings
from fuzz.pair import Judged, Pair
from fuzz.replay_cases import ReplayReport, replay_all
from fuzz.report.summary import Summary, conclusion
from oracles.case import Case, case_id
from oracles.compare import Finding, Verdict, VerdictName
from oracles.plan import Died
from tests.models import dense

NOTHING_KNOWN = KnownFindings([])


def told(fingerprint: str, verdict: VerdictName) -> Finding:
    return Finding(
        law="M4", verdict=verdict, planner="patched", fingerprint=fingerprint, summary="", first_difference="",
    )  # fmt: skip


REGRESSION, UNFIXED, FIXED = told("aaaaaaaa", "regression"), told("bbbbbbbb", "unfixed"), told("cccccccc", "fixed")
NEW, SHARED = told("dddddddd", "dispute"), told("bbbbbbbb", "dispute")


def test_a_gate_minds_regressions_and_disputes_over_what_the_base_shows_nowhere() -> None:
    assert gated([REGRESSION, UNFIXED, FIXED, NEW, SHARED]) == [REGRESSION, NEW]
    assert gated([SHARED, UNFIXED]) == []
    assert gated([SHARED]) == [SHARED]


@pytest.mark.parametrize(("known", "minded"), [(False, 1), (True, 0)])
def test_what_is_known_is_not_minded(known: bool, minded: int) -> None:
    witness = Witness(
        id="0123456789ab", fingerprint="dddddddd", law="M4", verdict="dispute", planner="patched", summary="",
        first_difference="", case="", layers=1, known=known,
    )  # fmt: skip
    summary = Summary(findings=(witness,), gate=True, cases=1, complete=True)
    assert len(summary.minded) == minded
    assert ("1 finding needs attention" in conclusion(summary)) is bool(minded)


class Judging(Pair):
    """A pair that answers each case with a verdict that was laid down for it."""

    def __init__(self, verdicts: dict[str, Verdict]) -> None:
        self._verdicts = verdicts


def replayed(monkeypatch: pytest.MonkeyPatch, verdicts: list[Verdict], *, gate: bool = True) -> ReplayReport:
    """A replay of cases that are judged so."""
    cases = [dense(f"model{at}") for at in range(len(verdicts))]
    laid_down = {case_id(case): verdict for case, verdict in zip(cases, verdicts, strict=True)}

    class Focused:
        def __init__(self, *_: object) -> None: ...

        def submit(self, some: list[Case]) -> list[Case]:
            return some

        def collect(self, some: list[Case]) -> list[Judged]:
            gone = Died(cause="exit 1")
            return [
                Judged(case=c, unpatched=gone, patched=gone, verdict=laid_down[case_id(c)], planner_seconds=0.0)
                for c in some
            ]

    monkeypatch.setattr("fuzz.replay_cases.FocusedPair", Focused)
    monkeypatch.setattr(Judging, "infos", lambda _: ())
    named = [(f"case {at}", case) for at, case in enumerate(cases)]
    return replay_all(Judging({}), named, NOTHING_KNOWN, gate=gate)


AGREE, SILENT = Verdict(name="agree"), Verdict(name="inconclusive", reason="unsupported: sink")


def test_a_dispute_in_one_case_is_forgiven_for_what_another_shows_of_the_base(monkeypatch: pytest.MonkeyPatch) -> None:
    dispute, shared = Verdict(name="dispute", findings=(SHARED,)), Verdict(name="unfixed", findings=(UNFIXED,))
    assert not replayed(monkeypatch, [dispute, shared]).failed
    assert replayed(monkeypatch, [dispute, AGREE]).failed
    assert replayed(monkeypatch, [dispute, AGREE]).minded == ("bbbbbbbb",)
    assert replayed(monkeypatch, [dispute, shared], gate=False).failed


def test_a_gate_that_could_judge_nothing_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not replayed(monkeypatch, [SILENT, AGREE]).errors
    assert replayed(monkeypatch, [SILENT, SILENT]).errors
    assert replayed(monkeypatch, [SILENT, AGREE], gate=False).errors


def test_what_a_case_failed_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    report = replayed(monkeypatch, [Verdict(name="regression", findings=(REGRESSION, FIXED)), AGREE])
    assert report.cases[0].failing == [REGRESSION]
    assert report.cases[1].failing == []
