"""Planners that tests share: importing vLLM takes seconds, a question milliseconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.planners.process import Planner
from fuzz.planners.trees import Config, open_launch


def _serving(address: str) -> Iterator[Planner]:
    planner = Planner(open_launch(address, Config()))  # an empty Config: no kvfuzz.toml of the user's
    planner.start()  # not awaited, so that two planners of one test start side by side
    yield planner
    planner.close()


@pytest.fixture(scope="session")
def unpatched() -> Iterator[Planner]:
    """The installed vLLM as it is; one process per test process."""
    yield from _serving("installed")


@pytest.fixture(scope="session")
def patched() -> Iterator[Planner]:
    """The installed vLLM keeping the contract ``isolate``; one process per test process."""
    yield from _serving("installed+isolate")


@pytest.fixture(params=["unpatched", "patched"])
def either(request: pytest.FixtureRequest) -> Planner:
    """Both in turn, for what must hold under either contract."""
    planner = request.getfixturevalue(request.param)
    assert isinstance(planner, Planner)
    return planner
