"""The example maps and the table of geometries, asked of vLLM as it is and under the contract ``isolate``."""

from __future__ import annotations

import pytest
from msgspec import structs

from fuzz.corpus import case_files, corpus_folder
from fuzz.planners.process import Planner
from oracles.plan import Outcome, Refused, plan_of
from tests.corpus.asking import (
    ask,
    block_bytes,
    corpus_case,
    placement_faults,
    plan,
    pools,
    refusal,
    request_blocks,
    shapes,
    table_widths,
)
from tests.corpus.expected_examples import ISOLATE, NATIVE, Expected, Pool

NAMES = sorted(NATIVE)
PLACED = [name for name in NAMES if isinstance(NATIVE[name].end, Pool)]
FORCED = [name for name in NAMES if name.endswith(".layer-outer")]


def check(outcome: Outcome, expected: Expected) -> None:
    """Compares every stage with what is written out."""
    answer = plan_of(outcome)
    assert answer is not None
    assert (shapes(answer) if answer.groups is not None else None) == expected.groups
    if isinstance(expected.end, Pool):
        assert not isinstance(outcome, Refused), outcome
        assert answer.sizes is not None
        assert answer.capacity is not None
        assert pools(answer)[0].num_blocks == expected.end.blocks
        assert block_bytes(answer) == expected.end.block_bytes
        assert (answer.sizes.scheduler_block, answer.sizes.hash_block) == expected.end.sizes
        assert table_widths(answer) == expected.end.widths
        assert request_blocks(answer) == expected.end.request
        assert answer.capacity.concurrency == expected.end.concurrency
    else:
        assert isinstance(outcome, Refused), outcome
        assert (outcome.first.stage, outcome.first.type) == (expected.end.stage, expected.end.type)
        assert expected.end.says in outcome.first.message


def test_every_example_has_its_values_for_both_contracts() -> None:
    files = {path.stem for path in case_files(corpus_folder() / "examples")}
    assert files == set(NATIVE) == set(ISOLATE)


@pytest.mark.parametrize("name", NAMES)
def test_native_planning_gives_the_written_values(name: str, unpatched: Planner) -> None:
    check(ask(unpatched, corpus_case(f"examples/{name}")), NATIVE[name])


@pytest.mark.parametrize("name", NAMES)
def test_isolate_gives_the_written_values(name: str, patched: Planner) -> None:
    check(ask(patched, corpus_case(f"examples/{name}")), ISOLATE[name])


@pytest.mark.parametrize("name", PLACED)
def test_native_pages_do_not_collide(name: str, unpatched: Planner) -> None:
    case = corpus_case(f"examples/{name}")
    assert placement_faults(case, plan(unpatched, case)) == []


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(ISOLATE[name].end, Pool)])
def test_isolated_pages_do_not_collide(name: str, patched: Planner) -> None:
    case = corpus_case(f"examples/{name}")
    assert placement_faults(case, plan(patched, case)) == []


@pytest.mark.parametrize("name", FORCED)
def test_the_layout_guard_refuses_what_is_forced(name: str, either: Planner) -> None:
    case = corpus_case(f"examples/{name}")
    assert case.settings.layout_origin == "forced"
    asked = structs.replace(case, settings=structs.replace(case.settings, layout_origin="resolved"))
    found = refusal(either, asked, "input")
    assert found.type == "ValueError"
    assert "replicated draft and mixed KV page sizes requires a block-outer KV cache layout" in found.message


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FORCED])
def test_the_other_layouts_are_those_that_vllm_resolves(name: str) -> None:
    assert corpus_case(f"examples/{name}").settings.layout_origin == "resolved"
