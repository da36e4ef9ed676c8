"""The reference agrees with released vLLM, but for differences that are understood."""

from __future__ import annotations

import random

import pytest

from fuzz.corpus import corpus_folder
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.strategies import Shape, draw_case
from fuzz.strategies.vocabulary import vocabulary_of
from oracles.law import Contract
from oracles.plan import Unsupported
from oracles.reference import Unruled, compare_with, expected_plan, rules_for
from tests.oracles.known_differences import KNOWN, Key

SEEDS = 300
QUICK = ("installed", "installed+isolate")
RELEASED = (
    "pypi:0.33.0", "pypi:0.33.0+isolate", "pypi:0.32.0", "pypi:0.31.0", "pypi:0.30.0", "pypi:0.29.0", "pypi:0.28.0",
    "pypi:0.27.0", "pypi:0.26.0",
)  # fmt: skip


def differences(address: str, seeds: int) -> tuple[dict[Key, str], int]:
    """(what differs from the reference, how many cases were compared).

    Cases for a version without layouts keep to what it can express: most of the others would be put to it in vain.
    """
    contract: Contract = "isolate" if address.endswith("+isolate") else "native"
    planner = Planner(open_launch(address, Config()))
    try:
        hello = planner.hello()
        rules = rules_for(hello.version, hello.generation, hello.capabilities)
        assert rules is not None, hello.version
        shape = Shape() if rules.generation == "packed" else Shape(vocabulary=vocabulary_of(hello))
        cases = [draw_case(random.Random(f"agreement {seed}"), shape) for seed in range(seeds)]
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
    found, compared = differences(address, SEEDS)
    assert {key: words for key, words in found.items() if key not in KNOWN} == {}
    assert compared >= SEEDS // 6


def test_every_understood_difference_has_its_case() -> None:
    kept = {path.stem for folder in ("regress", "reports") for path in (corpus_folder() / folder).glob("*.json")}
    assert set(KNOWN.values()) <= kept
