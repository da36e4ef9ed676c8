"""Which of several findings a case is told by."""

from __future__ import annotations

import pytest

from fuzz.export.diagnosis import NothingFound, choose_finding
from oracles.compare import Finding, VerdictName


def finding(law: str, verdict: VerdictName = "regression", *, error: str = "") -> Finding:
    return Finding(
        law=law, verdict=verdict, planner="patched", fingerprint=f"{law:_<8}", summary="", first_difference="",
        error=error,
    )  # fmt: skip


LOST, REFUSED, DIFFERS = finding("G1"), finding("R1", error="IndexError"), finding("G7")
MENDED = finding("G3", "fixed")


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        ((REFUSED, LOST), LOST),
        ((DIFFERS, REFUSED), REFUSED),
        ((finding("reference.place", error="ValueError"), REFUSED), REFUSED),
        ((finding("reference.group"), LOST), LOST),
        ((MENDED, DIFFERS), DIFFERS),
    ],
)
def test_the_cause_is_told_before_what_may_follow_from_it(findings: tuple[Finding, ...], told: Finding) -> None:
    assert choose_finding(findings, None, "a case") == told
    assert choose_finding(findings[::-1], None, "a case") == told


def test_a_finding_that_is_named_is_told() -> None:
    assert choose_finding((LOST, REFUSED), REFUSED.fingerprint, "a case") == REFUSED
    with pytest.raises(NothingFound, match=r"does not show 0123abcd .*G1______"):
        choose_finding((LOST,), "0123abcd", "a case")
