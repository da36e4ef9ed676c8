"""The end of a run as JUnit XML: a test case for each finding, and one for the run itself.

Names are made from what identifies a fault and not from its case, so that a CI system can follow one over runs.
"""

from __future__ import annotations

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from fuzz.campaign.events import Witness
from fuzz.known import Known
from fuzz.report.summary import WORDS, Summary, conclusion, law_text, reason_known, visible
from oracles.compare import FAILING


def render(summary: Summary, replay_arguments: str = "") -> str:
    """The report. Findings that fail are failures, known ones are skipped, those that the patch fixes pass."""
    suite = TestSuite("kvfuzz")
    suite.add_testcase(_run(summary))
    for witness in summary.findings:
        suite.add_testcase(_finding(summary, witness, replay_arguments))
    for entry in summary.unmatched:
        suite.add_testcase(_unmatched(entry))
    for name, value in _properties(summary):
        suite.add_property(name, visible(value))
    suite.update_statistics()
    suite.time = summary.seconds
    document = JUnitXml("kvfuzz")
    document.add_testsuite(suite)
    document.update_statistics()
    text: bytes = document.tostring()
    return text.decode()


def _run(summary: Summary) -> TestCase:
    case = TestCase("run", classname="kvfuzz", time=summary.seconds)
    if not summary.complete:
        case.result = [Error("the run was interrupted", "interrupted")]
    elif summary.cases == 0 or summary.canary_survived:
        case.result = [Error(conclusion(summary), "says nothing")]
    case.system_out = conclusion(summary)
    return case


def _unmatched(entry: Known) -> TestCase:
    case = TestCase(f"{entry.fingerprint} still stands", classname="kvfuzz.known")
    failure = Failure("known.toml lists a fault that is gone; delete its entry", "unmatched")
    failure.text = visible(entry.reason)
    case.result = [failure]
    return case


def _finding(summary: Summary, witness: Witness, replay_arguments: str) -> TestCase:
    name = f"{witness.fingerprint} {WORDS.get(witness.verdict, witness.verdict)}: {visible(witness.first_difference)}"
    case = TestCase(name, classname=f"kvfuzz.{visible(witness.law)}", time=0.0)
    words = visible(witness.summary)
    body = (
        f"{witness.planner}: {words}\n{law_text(witness.law)}\n"
        f"seen in {witness.seen:,} cases, the smallest with {witness.layers:,} layers\n"
        f"kvfuzz replay {witness.id}{visible(replay_arguments)}"
    )
    if witness.known:
        case.result = [Skipped(f"known: {visible(reason_known(summary, witness))}", "known")]
    elif witness.verdict in FAILING:
        failure = Failure(words, witness.verdict)
        failure.text = body
        case.result = [failure]
    case.system_out = body
    return case


def _properties(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("contract", summary.contract),
        ("seed", str(summary.seed)),
        ("cases", str(summary.cases)),
        *((f"verdict.{name}", str(count)) for name, count in summary.verdicts.items()),
        *((f"planner.{p.role}", f"{p.address} (vLLM {p.version})") for p in summary.planners),
    ]
