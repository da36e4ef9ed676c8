"""Real planners: what is drawn is valid input to them, memory meets their boundary, and their branches are reached."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from msgspec import structs

from fuzz.planners.arcs import branches_in, planner_files
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.stats import Reach, draw_cases, is_accepted, measure_reach
from fuzz.strategies import Shape, draw_case, smallest_memory, vocabulary_of
from fuzz.strategies.mutate import mutate
from oracles.case import Case, Worker
from oracles.plan import Outcome, Refused, refusal_at

CASES = 3_000
SEED = 1

UNREACHABLE: tuple[tuple[str, str, str], ...] = (
    # Planning asks without the coordinator's manager classes; the running engine asks with them.
    ("partial_hash_hits_enabled", "past", "if manager_classes is None:"),
    ("partial_hash_hits_enabled", "into", "if unsupported_managers:"),
    ("partial_hash_hits_enabled", "past", "if unsupported_managers:"),
    # An empty map leaves ``get_kv_cache_groups`` before uniformity is asked.
    ("is_kv_cache_spec_uniform", "into", "if not kv_cache_spec:"),
    # HiSparse: host pools are outside the vocabulary (DESIGN 2).
    ("get_max_concurrency_for_kv_cache_config", "into", "if host_blocks_per_request:"),
    ("get_max_concurrency_for_kv_cache_config", "into", "if group.host_resident:"),
    ("get_kv_cache_config_from_groups", "into", "if vllm_config.attention_config.hisparse_config is not None:"),
    ("get_kv_cache_groups", "into",
     "if hisparse_groups := get_hisparse_kv_cache_groups(vllm_config, kv_cache_spec):"),
    ("_estimate_max_model_len_from_groups", "into", "if hisparse_enabled:"),
    ("_estimate_max_model_len_from_groups", "into", "except ValueError:"),
    ("_auto_fit_max_model_len", "into", "if vllm_config.attention_config.hisparse_config is not None:"),
    # The promotion before it raises when its result is not of one type.
    ("_try_get_full_allocation_fallback_groups", "into", "if uniform_spec is None:"),
    # Called with at least one positive count, and a floor that is one of them.
    ("_approximate_gcd", "into", "if not values:"),
    ("_approximate_gcd", "into", "if any(x <= 0 for x in values):"),
    ("_approximate_gcd", "into", "if min_d > max_d:"),
    # The last layer is in a group, so the search for it never runs out.
    ("_annotate_eagle_groups", "past", "for group in kv_cache_groups:"),
    # Every number has the divisor 1.
    ("_largest_divisor_at_most", "past", "for candidate in range(min(value, limit), 0, -1):"),
    # A worker without layers holds empty groups, not none; with no group at all nobody asks.
    ("_max_memory_usage_bytes_from_groups", "into", "if not kv_cache_groups:"),
    ("_auto_fit_max_model_len", "into", "if not groups:"),
)  # fmt: skip
"""Branches of vLLM 0.32's planner that no case can take: function, way, and the statement's first line."""

REACHABLE_YET_RARE = (
    # Needs a grouping that loses layers, which is a fault, together with an MTP draft.
    ("_annotate_eagle_groups", "into", "if not _groups_partition_layers_exactly(kv_cache_spec, kv_cache_groups):"),
)
"""Branches that a case can take and that three thousand may miss."""


@pytest.fixture(scope="module")
def reach(unpatched: Planner) -> Reach:
    return measure_reach(unpatched, draw_cases(CASES, SEED))


@pytest.fixture(scope="module")
def newest() -> Iterator[Planner]:
    launch = open_launch("pypi:0.33.0", Config())
    with Planner(launch) as planner:
        yield planner


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_installed_planner_takes_the_cases_as_valid_input(reach: Reach) -> None:
    assert reach.accepted >= 0.95 * CASES, (reach.unsupported, reach.refusals)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_case_kills_or_stops_the_installed_planner(reach: Reach) -> None:
    assert set(reach.outcomes) <= {
        "planned", "refused at input", "refused at group", "refused at place", "refused at size",
        "refused at capacity", "unsupported",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_most_cases_are_planned_to_the_end(reach: Reach) -> None:
    assert reach.outcomes["planned"] > 0.5 * CASES


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_branches_of_the_installed_planner_are_reached(reach: Reach) -> None:
    unreachable = Counter(UNREACHABLE)
    missed = [b for b in reach.unreached if not unreachable[b.function, b.way, b.text]]
    assert reach.branches is not None
    reachable = reach.branches[1] - len(UNREACHABLE)
    assert len(missed) <= 0.05 * reachable, missed
    # All that is missed is explained above, so that a new gap shows at once.
    assert {(b.function, b.way, b.text) for b in missed} <= set(REACHABLE_YET_RARE)


def test_what_is_called_unreachable_exists(unpatched: Planner) -> None:
    known = {(b.function, b.way, b.text) for b in branches_in(planner_files(unpatched.hello()))}
    assert set(UNREACHABLE) | set(REACHABLE_YET_RARE) <= known


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_newest_planner_takes_the_cases_as_valid_input(newest: Planner) -> None:
    drawn = draw_cases(CASES, SEED)
    answers = newest.ask([Question(case) for case in drawn])
    assert sum(is_accepted(answer.outcome) for answer in answers) >= 0.95 * CASES


def test_mutants_are_valid_input_too(unpatched: Planner) -> None:
    generator = random.Random(9)
    cases = draw_cases(200, SEED)
    mutants = [mutate(generator, mutate(generator, case), cases[at - 1]) for at, case in enumerate(cases)]
    answers = unpatched.ask([Question(case) for case in mutants])
    assert sum(is_accepted(answer.outcome) for answer in answers) >= 0.95 * len(mutants)


def test_a_vocabulary_from_a_greeting_leaves_nothing_unsupported(unpatched: Planner) -> None:
    shape = Shape(vocabulary=vocabulary_of(unpatched.hello()))
    generator = random.Random(12)
    answers = unpatched.ask([Question(draw_case(generator, shape)) for _ in range(200)])
    assert all(is_accepted(answer.outcome) for answer in answers)


def with_memory(case: Case, memory: tuple[int, ...]) -> Case:
    workers = tuple(
        Worker(memory=one, stage=worker.stage) for one, worker in zip(memory, case.settings.workers, strict=True)
    )
    settings = structs.replace(case.settings, workers=workers, auto_fit=False, block_override=None)
    return structs.replace(case, settings=settings)


def lacks_memory(outcome: Outcome) -> bool:
    refusal = refusal_at(outcome, "place")
    return refusal is not None and ("To serve at least one" in refusal.message or "No available" in refusal.message)


def test_the_smallest_memory_is_where_the_planner_turns(unpatched: Planner) -> None:
    cases = [case for case in draw_cases(250, 5) if case.layers and min(smallest_memory(case)) > 0]
    enough = [with_memory(case, smallest_memory(case)) for case in cases]
    less = [with_memory(case, tuple(one - 1 for one in smallest_memory(case))) for case in cases]
    answers = unpatched.ask([Question(case) for pair in zip(enough, less, strict=True) for case in pair])
    pairs = [(answers[at].outcome, answers[at + 1].outcome) for at in range(0, len(answers), 2)]
    # A case that is refused for another reason says nothing about memory.
    told = [(one, other) for one, other in pairs if not isinstance(one, Refused) or lacks_memory(one)]
    exact = sum(not isinstance(one, Refused) and lacks_memory(other) for one, other in told)
    assert len(told) > 100
    assert exact >= 0.95 * len(told)
