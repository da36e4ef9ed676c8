"""The bodies of ``tests.replay.test_device`` on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.replay import device as script
from fuzz.replay.memory.check import pools_with_arithmetic
from tests.replay import bodies


@pytest.fixture(autouse=True, scope="module")
def _device() -> None:
    pool = pools_with_arithmetic(*bodies.sound("BLNHC"), "")
    *_, last = script.replay([script.decode(line) for line in bodies.lines(pool)], "cuda", 1.0, 60.0)
    if "no_device" in last["summary"]:
        pytest.skip(f"skipped: {last['summary']['no_device']}")


def test_sound_plans_are_clean(tmp_path: Path) -> None:
    bodies.sound_plans_are_clean("cuda", tmp_path)


def test_faults_are_found(tmp_path: Path) -> None:
    bodies.faults_are_found("cuda", tmp_path)


def test_pools_beyond_4_gib_are_painted(tmp_path: Path) -> None:
    bodies.pools_beyond_4_gib_are_painted_sparsely("cuda", tmp_path)


def test_a_pool_that_ends_its_process_does_not_end_the_others(tmp_path: Path) -> None:
    bodies.one_pool_does_not_end_the_others("cuda", tmp_path)
