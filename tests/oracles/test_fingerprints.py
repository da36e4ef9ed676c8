"""Fingerprints of faults planted into vLLM itself: one fault is one, ten faults are ten."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from fuzz.pair import told_once
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.strategies import Shape, draw_case
from oracles.case import Case
from oracles.law import Breach, Evidence
from oracles.laws import broken_laws
from oracles.plan import Outcome, Planned
from oracles.reference import RuleSet, compare_with, expected_plan, rules_for

FAULTS = {
    "lost_layer": ("G1", "groups[].layers.missing"),
    "foreign_layer": ("G1", "groups[].layers.foreign"),
    "reversed_layers": ("reference.group", "groups[].layers"),
    "wider_window": ("G3", "groups[].slots"),
    "bare_refusal": ("R1", "refusal.group"),
    "typed_refusal": ("reference.group", "group.refusal"),
    "records_before_the_pool": ("M3", "placement[].bounds"),
    "forgotten_record": ("M1", "placement[].layers.missing"),
    "doubled_scheduler_block": ("S1", "sizes.scheduler_block"),
    "doubled_claim": ("C3", "capacity.concurrency"),
}
"""The faults of ``overlays/ten_faults.py``, and the law and path by which each is told first."""

WITNESSES = 50
SMALL = Shape(max_layers=12)


@pytest.fixture(scope="module")
def faulty() -> Iterator[Planner]:
    planner = Planner(open_launch(f"installed+{Path(__file__).parent / 'overlays' / 'ten_faults.py'}", Config()))
    yield planner
    planner.close()


@pytest.fixture(scope="module")
def rules(unpatched: Planner) -> RuleSet:
    hello = unpatched.hello()
    found = rules_for(hello.version, hello.generation, hello.capabilities)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def clean_cases(unpatched: Planner, rules: RuleSet) -> list[Case]:
    """Cases that vLLM plans without fault, so that whatever is found is the planted one."""
    drawn = [draw_case(random.Random(f"fingerprints {seed}"), SMALL) for seed in range(2000)]
    cases = [c for c in drawn if c.layers and c.settings.layout_origin == "resolved"]
    answers = unpatched.ask([Question(case) for case in cases])
    return [
        case
        for case, answer in zip(cases, answers, strict=True)
        if isinstance(answer.outcome, Planned) and not findings(case, answer.outcome, rules)
    ]


def findings(case: Case, outcome: Outcome, rules: RuleSet) -> list[Breach]:
    """What a campaign tells of one planner: broken laws, then a difference from the reference in another stage."""
    return told_once(
        broken_laws(Evidence(case=case, contract="native", outcome=outcome)),
        compare_with(expected_plan(case, rules, "native"), outcome),
    )


def first_findings(fault: str, cases: list[Case], planner: Planner, rules: RuleSet) -> list[Breach]:
    """The first finding in each of ``WITNESSES`` cases that show the fault."""
    told: list[Breach] = []
    for first in range(0, len(cases), WITNESSES):
        batch = [
            structs.replace(case, settings=structs.replace(case.settings, model_type=f"fault: {fault}"))
            for case in cases[first : first + WITNESSES]
        ]
        for case, answer in zip(batch, planner.ask([Question(case) for case in batch]), strict=True):
            told += findings(case, answer.outcome, rules)[:1]
            if len(told) == WITNESSES:
                return told
    return told


@pytest.mark.slow
def test_one_planted_fault_is_one_fingerprint_and_ten_are_ten(
    faulty: Planner, clean_cases: list[Case], rules: RuleSet
) -> None:
    prints: dict[str, str] = {}
    for fault, expected in FAULTS.items():
        told = first_findings(fault, clean_cases, faulty, rules)
        assert len(told) == WITNESSES, fault
        assert {(breach.law, breach.path) for breach in told} == {expected}, fault
        (prints[fault],) = {breach.fingerprint("patched") for breach in told}
    assert len(set(prints.values())) == len(FAULTS)
