"""Hypothesis profiles: named, derandomised for CI."""

from __future__ import annotations

import pytest
from hypothesis import settings

from fuzz.strategies.profiles import EXAMPLES


@pytest.mark.parametrize("name", ["dev", "ci", "nightly"])
def test_profiles_have_their_number_of_examples(name: str) -> None:
    assert settings.get_profile(name).max_examples == EXAMPLES[name]


@pytest.mark.parametrize(("name", "derandomised"), [("dev", False), ("ci", True), ("nightly", False)])
def test_only_ci_draws_the_same_cases_every_time(name: str, derandomised: bool) -> None:
    assert settings.get_profile(name).derandomize is derandomised


@pytest.mark.parametrize("name", ["dev", "ci", "nightly"])
def test_no_profile_has_a_deadline(name: str) -> None:
    assert settings.get_profile(name).deadline is None
