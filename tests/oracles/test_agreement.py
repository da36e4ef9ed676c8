"""The reference agrees with released vLLM, but for differences that are understood."""

from __future__ import annotations

import random

import pytest

from fuzz.corpus import corpus_folder
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.strategies import draw_case
from oracles.case import Case
from oracles.law import Contract
from oracles.plan import Unsupported
from oracles.reference import Unruled, compare_with, expected_plan, rules_for
from tests.oracles.known_differences import KNOWN, Key

SEEDS = 300
QUICK = ("installed", "installed+isolate")
RELEASED = (
    "pypi:0.33.0", "pypi:0.33.0+isolate", "pypi:0.32.0", "pypi:0.31.0", "pypi:0.30.0", "pypi:0.29.0", "pypi:0.28.0",
)  # fmt: skip


def differences(address: str, cases: list[Case]) -> tuple[dict[Key, str], int]:
    """(what differs from the reference, how many cases were compared)."""
    contract: Contract = "isolate" if address.endswith("+isolate") else "native"
    planner = Planner(open_launch(address, Config()))
    try:
        hello = planner.hello()
        rules = rules_for(hello.version, hello.generation, hello.capabilities)
        assert rules is not None, hello.version
        found: dict[Key, str] = {}
        compared = 0
        for case, reply in zip(cases, planner.ask([Question(case) for case in cases]), strict=True):
            expected = expected_plan(case, rules, contract)
            if isinstance(expected, Unruled) or isinstance(reply.outcome, Unsupported):
                continue
            compared += 1
            for breach in compare_with(expected, reply.outcome):
                found[breach.law, breach.path, breach.error, breach.frame] = breach.detail
        return found, compared
    finally:
        planner.close()


@pytest.mark.parametrize("address", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in RELEASED)])
def test_the_reference_agrees_but_for_understood_faults(address: str) -> None:
    cases = [draw_case(random.Random(f"agreement {seed}")) for seed in range(SEEDS)]
    found, compared = differences(address, cases)
    assert {key: words for key, words in found.items() if key not in KNOWN} == {}
    assert compared >= SEEDS // 5


def test_every_understood_difference_has_its_case() -> None:
    kept = {path.stem for path in (corpus_folder() / "regress").glob("*.json")}
    assert set(KNOWN.values()) <= kept
