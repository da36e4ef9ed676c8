"""Branches of a source file: found in its syntax tree, seen by tracing."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fuzz.planners.arcs import Branch, Tracer, branches_in
from fuzz.planners.process import Planner, Question
from oracles.case import Case
from tests.models import dense, split_by_draft

SOURCE = """\
def group(layers,
          limit=3):
    found = []
    for layer in layers:
        if (
            layer
            > limit
        ):
            found.append(layer)
        else:
            found.append(0)
    while len(found) > 5:
        found.pop()
    try:
        found[9]
    except IndexError:
        found.append(9)
    return [x for x in found if x]


def fails(value):
    if value.missing:
        return 1
    return 2


def hash_block_tokens(value):
    if value:
        return 1
    return 2
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "planner_under_test.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("planner_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_branches_of_a_file(module: ModuleType) -> None:
    assert branches_in((Path(str(module.__file__)),)) == (
        Branch("group", 4, "into", "for layer in layers:"),
        Branch("group", 4, "past", "for layer in layers:"),
        Branch("group", 12, "into", "while len(found) > 5:"),
        Branch("group", 12, "past", "while len(found) > 5:"),
        Branch("group", 5, "into", "if ("),
        Branch("group", 5, "past", "if ("),
        Branch("group", 16, "into", "except IndexError:"),
        Branch("fails", 22, "into", "if value.missing:"),
        Branch("fails", 22, "past", "if value.missing:"),
    )


def taken(module: ModuleType, run: Callable[[], object]) -> tuple[str, ...]:
    tracer = Tracer([module])
    with tracer.watching():
        run()
    return tracer.taken()


def test_nothing_in_the_loop(module: ModuleType) -> None:
    assert taken(module, lambda: module.group([])) == ("group:12:past", "group:16:into", "group:4:past")


def test_both_ways_of_a_condition_over_several_lines(module: ModuleType) -> None:
    seen = taken(module, lambda: module.group([1, 7]))
    assert {"group:5:into", "group:5:past", "group:4:into", "group:4:past"} <= set(seen)


def test_a_loop_that_runs(module: ModuleType) -> None:
    assert "group:12:into" in taken(module, lambda: module.group([1] * 8))


def test_an_exception_in_a_condition_takes_no_branch(module: ModuleType) -> None:
    def run() -> None:
        with pytest.raises(AttributeError):
            module.fails(1)

    assert taken(module, run) == ()


def test_functions_that_do_not_plan_are_not_watched(module: ModuleType) -> None:
    assert taken(module, lambda: module.hash_block_tokens(1)) == ()


def test_another_tracer_is_put_back(module: ModuleType) -> None:
    before = sys.gettrace()
    taken(module, lambda: module.group([1]))
    assert sys.gettrace() is before


@pytest.mark.parametrize("case", [dense(), split_by_draft()])
def test_branches_do_not_change_the_outcome(unpatched: Planner, case: Case) -> None:
    plain, traced = unpatched.ask([Question(case), Question(case, depth="branches")])
    assert traced.outcome == plain.outcome
    assert traced.branches
    assert not plain.branches


def test_a_case_takes_the_branches_of_its_path(unpatched: Planner) -> None:
    uniform, mixed = unpatched.ask([Question(dense(), depth="branches"), Question(split_by_draft(), depth="branches")])
    unifies = "unify_kv_cache_spec_page_size"
    assert not any(key.startswith(unifies) for key in uniform.branches)
    assert any(key.startswith(unifies) for key in mixed.branches)
