"""JUnit XML: what fails, what is skipped, what passes."""

from __future__ import annotations

from xml.etree import ElementTree

from msgspec import structs

from fuzz.report.details import Detail
from fuzz.report.junit import render
from fuzz.report.summary import Summary
from tests.report.conftest import HOSTILE_NAMES, M5_KNOWN


def results(text: str) -> dict[str, str]:
    """Each test case's class, with how it went."""
    root = ElementTree.fromstring(text)
    return {
        case.get("classname", ""): next((c.tag for c in case if c.tag in ("failure", "skipped", "error")), "passed")
        for case in root.iter("testcase")
    }


def test_open_findings_fail_known_ones_are_skipped_and_fixed_ones_pass(summary: Summary) -> None:
    text = render(summary)
    assert results(text) == {"kvfuzz": "passed", "kvfuzz.C3": "failure", "kvfuzz.M5": "skipped", "kvfuzz.G6": "passed"}
    root = ElementTree.fromstring(text)
    suite = next(root.iter("testsuite"))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    skipped = next(root.iter("skipped"))
    assert skipped.get("message") == "known: two strides <b>overlay</b>"
    failure = next(root.iter("failure"))
    assert f"kvfuzz replay {summary.open[0].id}" in (failure.text or "")


def test_a_name_does_not_depend_on_the_case(summary: Summary) -> None:
    other = tuple(structs.replace(w, id="0" * 12, layers=99, seen=5, summary="else") for w in summary.findings)
    names = [
        [case.get("name") for case in ElementTree.fromstring(render(one)).iter("testcase")]
        for one in (summary, structs.replace(summary, findings=other))
    ]
    assert names[0] == names[1]


def test_a_run_that_does_not_count_is_an_error(summary: Summary) -> None:
    for change in ({"complete": False}, {"canary_survived": True}, {"cases": 0, "findings": ()}):
        assert results(render(structs.replace(summary, **change)))["kvfuzz"] == "error"


def test_a_known_fault_that_is_gone_fails(summary: Summary) -> None:
    assert results(render(structs.replace(summary, unmatched=(M5_KNOWN,))))["kvfuzz.known"] == "failure"


def test_hostile_text_stays_text(hostile: tuple[Summary, dict[str, Detail]]) -> None:
    root = ElementTree.fromstring(render(hostile[0]))
    failure = next(f for f in root.iter("failure") if f.get("type") == "regression")
    message = failure.get("message", "")
    assert message.startswith(" and ".join(HOSTILE_NAMES))
    assert message.endswith("\\x1b[31m\\x00\\u202etxet\\ud800 second line")
