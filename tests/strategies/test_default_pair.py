"""The default pair under the strategies: every fault that it shows must be a known one.

What fails is kept as a case before anything is said of it, and the message ends in the line that asks again.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from fuzz.corpus import corpus_folder
from fuzz.known import KnownFindings, read_known
from fuzz.pair import Pair
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import Config, open_launch
from fuzz.store import Store
from fuzz.strategies import Shape, cases, mixed_cases
from oracles.case import Case, case_id
from oracles.compare import FAILING

SMALL = Shape(max_layers=12)

repeatable = settings(derandomize=settings.get_current_profile_name() != "nightly")
"""A new fault of a released vLLM is the nightly run's to find; it must not make someone's change look bad."""


@pytest.fixture(scope="session")
def default_pair() -> Iterator[Pair]:
    """The two planners that `kvfuzz run` compares by default, warm for the whole session."""
    unpatched, patched = (open_launch(address, Config()) for address in ("installed", "installed+isolate"))
    pair = Pair(unpatched, patched, "isolate", case_seconds=CASE_SECONDS, memory=MEMORY_BYTES)
    pair.start()
    yield pair
    pair.close()


@pytest.fixture(scope="session")
def known() -> KnownFindings:
    """The faults of the default pair that are known."""
    return read_known(corpus_folder() / "known.toml", datetime.date.today())


def check(pair: Pair, known: KnownFindings, case: Case) -> None:
    """Fails on a finding that is not known."""
    new = [
        finding
        for finding in pair.ask(case).verdict.findings
        if finding.verdict in FAILING and not known.covers(finding.fingerprint, finding.verdict)
    ]
    if new:
        Store().keep_case(case)
        told = "; ".join(f"{f.law} {f.fingerprint} ({f.verdict}) {f.summary}" for f in new)
        pytest.fail(f"{told}\nkvfuzz replay {case_id(case)}")


@repeatable
@given(case=cases(SMALL))
def test_the_default_pair_shows_no_fault_that_is_not_known(
    default_pair: Pair, known: KnownFindings, case: Case
) -> None:
    check(default_pair, known, case)


@repeatable
@given(case=mixed_cases(SMALL))
def test_the_default_pair_plans_mixed_models_by_the_contract(
    default_pair: Pair, known: KnownFindings, case: Case
) -> None:
    check(default_pair, known, case)
