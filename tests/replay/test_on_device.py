"""`kvfuzz replay --device`: pools of cases asked again, painted in child processes, and held against the laws."""

from __future__ import annotations

from io import StringIO

import pytest
import torch
from rich.console import Console

from fuzz.corpus import corpus_folder
from fuzz.planners.process import Planner
from fuzz.replay_cases import Painted, ReplayReport, paint_on_device, show_painted
from oracles.case import Case, case_id, load_case
from tests.oracles.models import FULL, WINDOW, model

BUDGET = 100.0


def overlaid() -> Case:
    """Groups whose blocks overlay each other, by a fault of 0.32."""
    return load_case((corpus_folder() / "regress" / "groups-of-two-strides-overlay.json").read_bytes())


def shown(painted: Painted) -> str:
    console = Console(file=StringIO(), width=200)
    show_painted(painted, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def failed(painted: Painted) -> bool:
    return ReplayReport(cases=(), counts={"FAILED": 0}, gate=False, planners=(), device=painted).failed


def test_pools_of_a_sound_case_are_clean(patched: Planner) -> None:
    case = model((FULL, 3), (WINDOW, 2))
    painted = paint_on_device(patched, [case], {case_id(case)}, "cpu", BUDGET)
    assert painted.pools == painted.clean > 0
    assert not failed(painted)
    assert f"{painted.pools} of {painted.pools} pools clean" in shown(painted)


def test_a_pool_broken_as_a_law_says_fails_nothing_more(patched: Planner) -> None:
    painted = paint_on_device(patched, [overlaid()], set(), "cpu", BUDGET)
    assert painted.broken == painted.pools > 0
    assert not failed(painted)


def test_a_pool_broken_without_a_law_fails(patched: Planner) -> None:
    case = overlaid()
    painted = paint_on_device(patched, [case], {case_id(case)}, "cpu", BUDGET)
    assert len(painted.unexpected) == painted.broken > 0
    assert failed(painted)
    assert f"unexpected {case_id(case)} worker 0: broken" in shown(painted)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_every_pool_is_skipped_and_said_to_be(patched: Planner) -> None:
    painted = paint_on_device(patched, [model((FULL, 1))], set(), "cuda", BUDGET)
    assert painted.skipped == painted.pools > 0
    assert f"skipped: no CUDA device ({painted.pools} pools)" in shown(painted)
    assert not failed(painted)


def test_a_plan_without_a_pool_is_told(patched: Planner) -> None:
    assert "no plan has a pool to paint" in shown(paint_on_device(patched, [], set(), "cpu", BUDGET))
