"""The minimal cases of what serving requests shows: each still fails by the known fault that names it."""

from __future__ import annotations

import datetime

import pytest

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.known import label, read_known
from fuzz.pair import Pair
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import Config, open_launch
from fuzz.replay_cases import replay_all
from oracles.law import Contract

PAIRS: tuple[tuple[str, str, str, Contract], ...] = (
    ("0.32.0", "installed", "installed+isolate", "isolate"),
    ("0.30.0", "pypi:0.30.0", "pypi:0.30.0", "native"),
    ("0.33.0", "pypi:0.33.0", "pypi:0.33.0", "native"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "before", "after", "contract"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_every_case_shows_its_known_fault_and_no_other(
    version: str, before: str, after: str, contract: Contract
) -> None:
    known = read_known(corpus_folder() / "known.toml", datetime.date(2026, 12, 1))
    cases = [(entry.name, entry.case) for entry in load_corpus(corpus_folder()) if entry.folder == "requests"]
    launches = open_launch(before, Config()), open_launch(after, Config())
    pair = Pair(*launches, contract, case_seconds=CASE_SECONDS, memory=MEMORY_BYTES)
    try:
        pair.start()
        report = replay_all(pair, cases, known, serves=lambda _: True)
    finally:
        pair.close()
    assert {one.name for one in report.cases if one.result == "FAILED"} == set()
    here = label(version, contract, serving=True)
    wanted = {(entry.case, entry.fingerprint) for entry in known.entries if here in entry.under}
    met = {(one.name, finding.fingerprint) for one in report.cases for finding in one.findings}
    assert len(wanted) >= 7
    assert wanted <= met
