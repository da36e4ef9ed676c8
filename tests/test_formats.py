"""Files written by earlier releases stay readable: one of each format lies in ``tests/formats``, as it was written.

A list of known faults has another name there, lest its folder be taken for a corpus. No file there is ever rewritten: a
change that cannot read it needs a new format number, a folder for it, and a reader for both.
"""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path

import pytest

from fuzz.campaign.journal import read_state
from fuzz.case_files import read_case
from fuzz.known import read_known
from fuzz.replay.device import FileError, decode, read_pools
from fuzz.store import Store
from oracles.case import CaseError, case_id, load_case

FIRST = Path(__file__).with_name("formats") / "1"


def test_a_case_keeps_its_meaning_and_its_id() -> None:
    case = read_case(FIRST / "case.json")
    assert case_id(case) == "6662afcafeed"
    assert len(case.layers) == 6


def test_a_finding_keeps_its_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    shutil.copy(FIRST / "record.json", tmp_path / "findings" / "39d11c09ea22-5114991d.json")
    (record,) = Store(tmp_path).records()
    assert (record.id, record.finding.fingerprint, record.finding.law) == ("39d11c09ea22", "5114991d", "G6")
    assert (record.contract, record.unpatched, record.patched) == ("isolate", "installed", "installed+isolate")


def test_a_run_can_be_taken_up_again() -> None:
    state = read_state(FIRST / "state.json")
    assert state is not None
    assert (state.asking.seed, state.asking.cases, state.books.cases) == (3, 48, 48)
    assert state.books.witnesses.keys() == {"5114991d:fixed", "12cc0e37:fixed"}


def test_a_known_fault_stays_known() -> None:
    known = read_known(FIRST / "known-faults.toml", datetime.date(2027, 5, 31))
    (entry,) = known.met({"af7a567b"})
    assert entry.case == "regress/claim-counts-the-null-block.json"
    assert "0.32.0 isolate" in entry.under


def test_a_plan_can_be_replayed() -> None:
    (pool,) = read_pools(FIRST / "plans.jsonl")
    assert pool.pages
    assert pool.pool_bytes > 0


def test_a_format_of_a_later_release_is_left_alone_and_named(tmp_path: Path) -> None:
    def later(name: str) -> str:
        return json.dumps({**json.loads((FIRST / name).read_text()), "format": 2})

    with pytest.raises(CaseError, match="format: 2 is not known here; this kvfuzz reads format 1"):
        load_case(later("case.json").encode())
    with pytest.raises(FileError, match="format"):
        decode(later("plans.jsonl"))
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "39d11c09ea22-5114991d.json").write_text(later("record.json"))
    assert Store(tmp_path).records() == []
    (tmp_path / "state.json").write_text(later("state.json"))
    assert read_state(tmp_path / "state.json") is None
