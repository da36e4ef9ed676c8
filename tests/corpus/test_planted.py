"""The smallest cases of planted defects: each defect is seen on its case, so a run that asks the corpus sees it."""

from __future__ import annotations

import re
import statistics

import pytest

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.score.mutants import Mutant
from oracles.case import Case
from tests.minimise.planted import ELSEWHERE, defects, pair_of

SHOWN = re.compile(r"(?:Shows|And) (\w+):")
HARDEST = "largest_alignment_only"
"""A gate's 400 drawn cases miss it."""


def planted_cases() -> dict[str, Case]:
    """The case of each defect, as the provenance tells."""
    corpus = {entry.name: entry.case for entry in load_corpus(corpus_folder())}
    planted = [case for name, case in corpus.items() if name.startswith("planted/")]
    shown = {name: case for case in planted for name in SHOWN.findall(case.provenance.note)}
    return shown | {defect: corpus[name] for defect, name in ELSEWHERE.items()}


def regresses(mutant: Mutant, case: Case) -> bool:
    """Whether the defect is a regression on ``case``."""
    pair = pair_of(mutant)
    try:
        pair.start()
        (judged,) = pair.collect(pair.submit([case]))
    finally:
        pair.close()
    return any(finding.verdict == "regression" for finding in judged.verdict.findings)


def test_every_planted_defect_has_its_case() -> None:
    assert {mutant.name for mutant in defects()} - planted_cases().keys() == set()


def test_the_cases_are_small() -> None:
    layers = [len(case.layers) for case in planted_cases().values()]
    assert statistics.median(layers) <= 2
    assert max(layers) <= 13, "ties between two ways to deal two page sizes take that many"


@pytest.mark.slow
def test_a_defect_that_drawing_seldom_meets_is_met_in_the_corpus() -> None:
    (hardest,) = (mutant for mutant in defects() if mutant.name == HARDEST)
    assert regresses(hardest, planted_cases()[HARDEST])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_planted_defect_is_seen_on_its_case() -> None:
    cases = planted_cases()
    assert [m.name for m in defects() if not regresses(m, cases[m.name])] == []
