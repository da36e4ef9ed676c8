"""Three property tests as a maintainer of a planner would write them. They are the documentation of the strategies."""

from __future__ import annotations

from hypothesis import given

from fuzz.planners.process import Planner, Question
from fuzz.strategies import Shape, cases, mixed_cases, single_mode_cases
from oracles.case import Case, mode_of
from oracles.plan import plan_of, refusal_at


@given(case=cases(Shape(max_layers=12)))
def test_no_layer_is_in_two_groups(unpatched: Planner, case: Case) -> None:
    """``cases()``: any model under any settings. What is asked of a planner comes back as an outcome."""
    (answer,) = unpatched.ask([Question(case)])
    plan = plan_of(answer.outcome)
    if plan is None or plan.groups is None:
        return  # refused before it grouped: nothing to say here
    grouped = [name for group in plan.groups for name in group.layers]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) <= {layer.name for layer in case.layers}


@given(case=mixed_cases(Shape(max_layers=12)))
def test_no_group_mixes_replicated_and_sharded_layers(patched: Planner, case: Case) -> None:
    """``mixed_cases()``: a replicated draft beside a sharded target, which the contract ``isolate`` keeps apart."""
    (answer,) = patched.ask([Question(case, depth="group")])
    plan = plan_of(answer.outcome)
    if plan is None or plan.groups is None:
        return
    modes = {layer.name: mode_of(case.spec_of(layer)) == "replicated" for layer in case.layers}
    for group in plan.groups:
        assert len({modes[name] for name in group.layers}) == 1, group.layers


@given(case=single_mode_cases(Shape(max_layers=12)))
def test_a_patch_for_mixed_cases_leaves_single_mode_cases_alone(
    unpatched: Planner, patched: Planner, case: Case
) -> None:
    """``single_mode_cases()``: where the contract changes nothing, both planners give one answer."""
    before, after = (planner.ask([Question(case)])[0].outcome for planner in (unpatched, patched))
    assert plan_of(before) == plan_of(after)
    for stage in ("group", "place", "size", "capacity"):
        one, other = refusal_at(before, stage), refusal_at(after, stage)
        assert (one and one.message) == (other and other.message)
