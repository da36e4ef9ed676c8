"""The pair of planners under the strategies: every fault that it shows must be a known one.

What fails is kept as a case before anything is said of it, and the message ends in the line that asks again.
"""

from __future__ import annotations

from hypothesis import given, settings

from fuzz.pytest_plugin import Check
from fuzz.strategies import Shape, cases, mixed_cases
from oracles.case import Case

SMALL = Shape(max_layers=12)

repeatable = settings(derandomize=settings.get_current_profile_name() != "nightly")
"""A new fault of a released vLLM is the nightly run's to find; it must not make someone's change look bad."""


@repeatable
@given(case=cases(SMALL))
def test_the_pair_shows_no_fault_that_is_not_known(kv_check: Check, case: Case) -> None:
    kv_check(case)


@repeatable
@given(case=mixed_cases(SMALL))
def test_the_pair_plans_mixed_models_by_the_contract(kv_check: Check, case: Case) -> None:
    kv_check(case)
