"""Serving workloads: right plans are clean, releases' faults are found (planted ones: tests/export/test_serving.py)."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.planners.workload import Arrival, Served, Turn, Violation, Workload
from fuzz.replay.requests import (
    CHECKS,
    breaches_of,
    draw_workload,
    question,
    replay_requests,
    severity_of,
    untold,
    workload_for,
    workload_seconds,
)
from oracles.case import Case, ChunkedLocalSpec, MambaSpec, RSwaSpec, Speculative
from oracles.law import Breach
from tests.replay.request_cases import CLEAN, FULL, ODD_CHUNK, SHIFTED_DRAFT, SINK, SMALLER_BLOCK, STATE, case_of

SEEDS = range(6)


def broken(planner: Planner, case: Case) -> set[str]:
    """Checks broken by the first workload that breaks any, with their paths."""
    for seed in SEEDS:
        (replay,) = replay_requests([planner], [("case", case)], seed=seed)
        if replay.breaches:
            return {f"{breach.law} {breach.path}" for breach in replay.breaches}
    return set()


@pytest.mark.parametrize("name", CLEAN)
def test_a_right_plan_is_served_without_a_fault(unpatched: Planner, name: str) -> None:
    replays = [r for seed in range(3) for r in replay_requests([unpatched], [(name, CLEAN[name])], seed=seed)]
    assert [(r.breaches, r.reason) for r in replays] == [((), "")] * 3
    assert all(r.served is not None and r.served.turns == 100 and r.served.finished > 5 for r in replays)


def test_the_workloads_reach_what_they_are_to_check(unpatched: Planner) -> None:
    cases = list(CLEAN.items())
    served = [r.served for seed in range(3) for r in replay_requests([unpatched], cases, seed=seed)]
    assert all(one is not None for one in served)
    assert sum(one.hit_tokens > 0 for one in served if one is not None) > 15
    assert sum(one.refusals > 0 for one in served if one is not None) > 5
    assert sum(one.preemptions > 0 for one in served if one is not None) > 10
    assert {len(one.probes) for one in served if one is not None} == {4}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (SINK, {"Q1 serve.construct"}),
        (ODD_CHUNK, {"Q7 hit.chunk"}),
        (SMALLER_BLOCK, {"Q7 hit.state"}),
        (SHIFTED_DRAFT, {"Q7 hit.draft"}),
    ],
    ids=[
        "sink",
        "chunk that is no multiple of the block",
        "state block above the configured block",
        "two blocks of one hash with different drafts",
    ],
)
def test_faults_of_released_vllm_are_found(unpatched: Planner, case: Case, expected: set[str]) -> None:
    assert broken(unpatched, case) == expected


CHUNK = ChunkedLocalSpec(block_size=16, num_kv_heads=2, head_size=64, attention_chunk_size=64)
GAP = RSwaSpec(block_size=16, num_kv_heads=1, head_size=64, rswa_window=16)


@pytest.mark.parametrize(
    ("case", "limit"),
    [
        (case_of([FULL, CHUNK], drafts=0, speculative=Speculative(method="eagle", tokens=1)), "Hybrid KV cache is not"),
        (case_of([CHUNK], dcp=2), "no chunked local attention under DCP"),
        (
            case_of([msgspec.structs.replace(FULL, block_size=32, num_kv_heads=1), CHUNK]),
            "KV cache groups with different block sizes are not compatible with chunked local attention now",
        ),
        (
            case_of([FULL, STATE, msgspec.structs.replace(STATE, block_size=32)], mamba_mode="align"),
            "recurrent states of several block sizes",
        ),
    ],
    ids=["chunks and EAGLE", "chunks under DCP", "chunks and two block sizes", "states of two block sizes"],
)
def test_a_limit_that_vllm_states_is_no_fault(unpatched: Planner, case: Case, limit: str) -> None:
    (replay,) = replay_requests([unpatched], [("case", case)])
    assert (replay.result, replay.breaches) == ("SKIPPED", ())
    assert replay.reason.startswith(f"vLLM states a limit: {limit}")


def test_cached_states_in_blocks_that_vllm_rules_out_are_not_served(unpatched: Planner) -> None:
    assert isinstance(STATE, MambaSpec)
    odd = msgspec.structs.replace(STATE, block_size=12)
    (replay,) = replay_requests([unpatched], [("case", case_of([FULL, odd], mamba_mode="align"))])
    assert (replay.result, replay.reason) == (
        "SKIPPED", "vLLM documents blocks of cached recurrent states as multiples of 8 tokens",
    )  # fmt: skip


def test_a_layer_behind_another_ones_gap_is_told_apart(unpatched: Planner) -> None:
    """The order decides: a group is managed by its first layer."""
    assert broken(unpatched, case_of([GAP, FULL], model_len=8192)) == {"Q5 backed.led"}
    assert broken(unpatched, case_of([FULL, GAP], model_len=8192)) == set()


def test_what_serving_shows_of_a_wrong_plan_is_not_told_again() -> None:
    def breach(law: str, path: str = "") -> Breach:
        return Breach(law=law, path=path, detail="")

    served = [breach("Q1", "serve.construct"), breach("Q11", "capacity.concurrency.growth")]
    assert untold([], served) == served
    assert untold([breach("C3", "capacity.concurrency.null_block")], served) == served[:1]
    assert untold([breach("C3", "capacity.concurrency.null_block"), breach("G4")], served) == []


def test_a_workload_depends_on_the_case_and_the_seed_only() -> None:
    case = CLEAN["full"]
    assert workload_for(case, 1) == workload_for(case, 1)
    assert workload_for(case, 1) != workload_for(case, 2)
    assert workload_for(case, 1) != workload_for(CLEAN["window"], 1)


def test_steps_in_flight_and_drafts_are_drawn_only_where_the_case_has_them() -> None:
    drawn = {
        name: [draw_workload(CLEAN[name], random.Random(seed)) for seed in range(40)]
        for name in ("full", "one step in flight", "drafts")
    }
    assert {w.lag for w in drawn["full"]} == {0}
    assert {w.lag for w in drawn["one step in flight"]} == {0, 1}
    assert {w.drafts for w in drawn["full"]} == {False}
    assert {w.drafts for w in drawn["drafts"]} == {False, True}


def test_a_workload_survives_the_pipe() -> None:
    workload = workload_for(CLEAN["drafts"])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(workload), type=Workload) == workload


def test_breaches_name_no_sizes_and_come_once() -> None:
    violation = Violation(check="Q6", path="content.full", turn=3, group=1, message="token 17 is gone")
    served = Served(violations=(violation, msgspec.structs.replace(violation, turn=9, message="token 4 is gone")))
    (breach,) = breaches_of(CLEAN["full"], served)
    assert (breach.law, breach.path, breach.error, breach.frame) == ("Q6", "content.full", "", "")
    assert breach.detail == "step 3, group 1: token 17 is gone"
    assert severity_of(breach) == "fault"
    assert severity_of(msgspec.structs.replace(breach, path="hit.draft")) == "quality"


def test_every_check_says_what_and_why() -> None:
    assert list(CHECKS) == [f"Q{n}" for n in range(1, 12)]
    assert all(check.text and check.reason for check in CHECKS.values())


def test_a_prefix_is_found_again_by_a_request_that_shares_it(unpatched: Planner) -> None:
    arrival = Arrival(text=1, shared=64, tokens=3, output=1)
    workload = Workload(turns=(Turn(arrivals=(arrival,)), Turn(arrivals=(arrival,)), Turn()))
    answer = unpatched.ask([Question(CLEAN["full"], depth="serve", workload=workload)])[0]
    assert answer.served is not None
    assert (answer.served.hit_tokens, answer.served.tokens, answer.served.finished) == (64, 67 + 3, 2)


def test_nothing_is_served_of_a_case_that_is_refused(unpatched: Planner) -> None:
    starved = msgspec.structs.replace(
        CLEAN["full"], settings=msgspec.structs.replace(CLEAN["full"].settings, model_len=10**7)
    )
    answer = unpatched.ask([question(starved)])[0]
    assert answer.served is None


def test_other_depths_serve_nothing(unpatched: Planner) -> None:
    assert unpatched.ask([Question(CLEAN["full"])])[0].served is None


def test_a_workload_takes_less_than_a_second(unpatched: Planner) -> None:
    assert workload_seconds(unpatched) < 1.0


@pytest.fixture(scope="module")
def newest() -> Iterator[Planner]:
    with Planner(open_launch("pypi:0.33.0", Config())) as planner:
        yield planner


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_the_newest_release_serves_right_plans_without_a_fault(newest: Planner, name: str) -> None:
    (replay,) = replay_requests([newest], [(name, CLEAN[name])])
    assert (replay.result, replay.breaches) == ("CLEAN", ())
