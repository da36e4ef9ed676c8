"""Mutators: closed over validity, deterministic, each with its effect."""

from __future__ import annotations

import random

import pytest

from fuzz.strategies import draw_case
from fuzz.strategies.mutate import MAX_MUTANT_LAYERS, MUTATORS, Mutator, mutate
from fuzz.strategies.source import RandomSource
from oracles.case import Case, case_id, check_case


def pool(count: int = 60, seed: int = 3) -> list[Case]:
    generator = random.Random(seed)
    return [draw_case(generator) for _ in range(count)]


def test_mutants_of_mutants_stay_valid() -> None:
    generator = random.Random(7)
    cases = pool()
    for step in range(4_000):
        at = int(generator.random() * len(cases))
        other = cases[int(generator.random() * len(cases))]
        cases[at] = mutate(generator, cases[at], other)
        check_case(cases[at])
        assert len(cases[at].layers) <= 2 * MAX_MUTANT_LAYERS, step


def test_a_mutant_differs_from_its_case() -> None:
    generator = random.Random(7)
    cases = pool()
    assert sum(mutate(generator, case) != case for case in cases) >= len(cases) - 1


def test_the_same_generator_state_gives_the_same_mutant() -> None:
    one, two = random.Random(11), random.Random(11)
    assert [case_id(mutate(one, case)) for case in pool(30)] == [case_id(mutate(two, case)) for case in pool(30)]


def test_a_case_without_layers_can_be_mutated() -> None:
    generator = random.Random(1)
    empty = Case(specs=(), layers=())
    for _ in range(200):
        check_case(mutate(generator, empty))


@pytest.mark.parametrize("mutator", dict.fromkeys(MUTATORS), ids=lambda mutator: mutator.__name__)
def test_every_mutator_applies_to_many_cases(mutator: Mutator) -> None:
    source = RandomSource(random.Random(2))
    cases = pool()
    made = [mutator(source, case, other) for case, other in zip(cases, reversed(cases), strict=True)]
    assert sum(one is not None for one in made) > len(cases) // 3


def effect(name: str) -> list[tuple[Case, Case]]:
    mutator = next(m for m in MUTATORS if m.__name__ == name)
    source = RandomSource(random.Random(4))
    cases = pool(30)
    made = [(case, mutator(source, case, other)) for case, other in zip(cases, reversed(cases), strict=True)]
    return [(case, mutant) for case, mutant in made if mutant is not None]


def test_dropping_leaves_fewer_layers() -> None:
    assert all(len(mutant.layers) < len(case.layers) for case, mutant in effect("drop"))


def test_duplicating_gives_more_layers() -> None:
    assert all(len(mutant.layers) > len(case.layers) for case, mutant in effect("duplicate"))


def test_swapping_keeps_the_layers() -> None:
    for case, mutant in effect("swap"):
        assert sorted(layer.name for layer in mutant.layers) == sorted(layer.name for layer in case.layers)


def test_splicing_starts_like_the_case() -> None:
    assert all(mutant.layers[0].name == case.layers[0].name for case, mutant in effect("splice"))
