"""The minimal cases of faults: each still fails by a known fault, or passes on the default pair."""

from __future__ import annotations

import datetime
import tomllib

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.known import read_known
from fuzz.pair import Pair
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import Config, open_launch
from fuzz.replay_cases import replay_all

PAIR = "0.32.0 isolate"
"""What known.toml calls the default pair."""


def test_every_minimal_case_shows_a_known_fault_of_the_default_pair() -> None:
    unpatched, patched = (open_launch(address, Config()) for address in ("installed", "installed+isolate"))
    known = read_known(corpus_folder() / "known.toml", datetime.date(2026, 12, 1))
    cases = [(e.name, e.case) for e in load_corpus(corpus_folder()) if e.folder == "regress"]
    pair = Pair(unpatched, patched, "isolate", case_seconds=CASE_SECONDS, memory=MEMORY_BYTES)
    try:
        pair.start()
        report = replay_all(pair, cases, known)
    finally:
        pair.close()
    assert {one.name for one in report.cases if one.result == "FAILED"} == set()
    entries = tomllib.loads((corpus_folder() / "known.toml").read_text())["known"]
    shown = {entry["case"] for entry in entries if PAIR in entry["under"]}
    assert shown <= {one.name for one in report.cases if one.result == "KNOWN"}
    met = {finding.fingerprint for one in report.cases for finding in one.findings}
    assert {entry["fingerprint"] for entry in entries if PAIR in entry["under"]} <= met
