"""A pair of planners that are a function of the case, so that a search can be tested without vLLM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest
from msgspec import Struct

from fuzz.minimise import search
from fuzz.pair import Pair
from oracles.case import Case
from oracles.compare import Finding, Verdict, VerdictName

FINGERPRINT = "0123abcd"


def finding(verdict: VerdictName = "unfixed", fingerprint: str = FINGERPRINT) -> Finding:
    """A finding of the patched planner."""
    return Finding(
        law="G1", verdict=verdict, planner="patched", fingerprint=fingerprint, summary="a layer is lost",
        first_difference="groups[].layers.missing",
    )  # fmt: skip


class _Judged(Struct, frozen=True):
    case: Case
    verdict: Verdict


class FakePair:
    """Shows a finding for the cases of which ``shows`` says so; counts what it is asked."""

    def __init__(self, shows: Callable[[Case], Finding | None]) -> None:
        self.shows = shows
        self.asked: list[Case] = []

    def submit(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        self.asked += cases
        return tuple(cases)

    def collect(self, pending: tuple[Case, ...]) -> Iterator[_Judged]:
        for case in pending:
            found = self.shows(case)
            yield _Judged(case, Verdict(name=found.verdict, findings=(found,)) if found else Verdict(name="agree"))


def fake_pair(monkeypatch: pytest.MonkeyPatch, shows: Callable[[Case], Finding | None]) -> tuple[Pair, FakePair]:
    """A pair for the search, and the fake behind it."""
    monkeypatch.setattr(search, "FocusedPair", lambda pair, law: pair)
    fake = FakePair(shows)
    return cast(Pair, fake), fake
