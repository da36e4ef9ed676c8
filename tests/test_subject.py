"""What the commands on a finding take from the store: the planners that showed it, and under which contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.cli_findings import PATCHED, UNPATCHED, Subject, subject
from fuzz.store import Store
from oracles.case import case_id
from oracles.compare import Finding
from tests.models import dense

CASE = dense()
FINDING = Finding(
    law="G7", verdict="regression", planner="patched", fingerprint="0123abcd", summary="", first_difference="",
)  # fmt: skip
FOUND_BY = ("pypi:0.33.0", "git:/vllm@mine")


def asked(folder: Path, unpatched: str | None = None, patched: str | None = None) -> Subject:
    return subject(case_id(CASE), Store(folder), None, unpatched, patched, None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    Store(tmp_path).keep_finding(CASE, FINDING, "isolate", *FOUND_BY)
    return tmp_path


def test_the_planners_that_found_it_are_asked_under_their_contract(store: Path) -> None:
    about = asked(store)
    assert (about.unpatched, about.patched, about.contract) == (*FOUND_BY, "isolate")
    assert (about.fingerprint, about.named) == ("0123abcd", False)


def test_naming_the_same_planners_changes_nothing(store: Path) -> None:
    assert asked(store, *FOUND_BY) == asked(store, patched=FOUND_BY[1]) == asked(store)


def test_other_planners_promise_what_they_promise(store: Path) -> None:
    assert asked(store, patched="installed").contract is None
    assert asked(store, unpatched="installed").contract is None


def test_a_case_without_a_finding_is_put_to_the_default_pair(tmp_path: Path) -> None:
    Store(tmp_path).keep_case(CASE)
    about = asked(tmp_path)
    assert (about.unpatched, about.patched, about.contract) == (UNPATCHED, PATCHED, None)
