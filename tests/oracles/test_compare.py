"""Verdicts and fingerprints: one fault is one, ten faults are ten."""

from __future__ import annotations

import random

from msgspec import structs

from fuzz.strategies import draw_case
from oracles.compare import difference_paths, judge, outcome_difference
from oracles.law import Breach
from oracles.laws import broken_laws
from oracles.plan import Planned, Refusal, Refused
from oracles.reference import compare_with, expected_plan, refusals_by
from tests.oracles.models import FULL, RULES, WINDOW, breaches, model, planned, right_plan, with_group
from tests.oracles.test_laws import PLANTED

CASE = model((FULL, 2), (WINDOW, 4))


def test_one_fault_in_fifty_cases_has_one_fingerprint() -> None:
    """A page misstated by one byte, wherever it is found."""
    prints: set[str] = set()
    found = 0
    seed = 0
    while found < 50:
        case = draw_case(random.Random(f"fingerprint {seed}"))
        seed += 1
        expected = expected_plan(case, RULES, "native")
        if not isinstance(expected, Planned) or not expected.plan.groups:
            continue
        wrong = with_group(expected.plan, 0, page_bytes=expected.plan.groups[0].page_bytes + 1)
        prints |= {breach.fingerprint("patched") for breach in breaches(case, wrong) if breach.law == "G5"}
        found += 1
    assert len(prints) == 1


def test_different_faults_have_different_fingerprints() -> None:
    prints = {law: broken_laws(plant())[0].fingerprint("patched") for law, plant in PLANTED.items()}
    assert len(set(prints.values())) == len(PLANTED)


def test_a_fingerprint_tells_the_side_but_not_the_words() -> None:
    breach = Breach(law="G1", path="groups[].layers.missing", detail="model.layers.7 is in no group")
    same = structs.replace(breach, detail="other.3 is in no group")
    assert breach.fingerprint("patched") == same.fingerprint("patched") != same.fingerprint("unpatched")


def test_a_plan_of_the_reference_differs_in_nothing_from_itself() -> None:
    expected = expected_plan(CASE, RULES, "native")
    assert isinstance(expected, Planned)
    assert compare_with(expected, expected) == []


def test_the_earliest_stage_that_differs_is_reported() -> None:
    plan = right_plan(CASE)
    wrong = with_group(structs.replace(plan, sizes=None), 0, block_size=32)
    (breach,) = compare_with(planned(plan), planned(wrong))
    assert (breach.law, breach.path) == ("reference.group", "groups[].block_size")


def test_the_paths_of_differences_are_known() -> None:
    """Which fingerprints a difference can have is worked out from them."""
    plan = right_plan(CASE)
    assert plan.groups is not None
    assert plan.placement is not None
    assert plan.sizes is not None
    assert plan.capacity is not None
    pool = plan.placement[0]
    others = [structs.replace(plan, groups=None), structs.replace(plan, groups=())]
    for name in ("layers", "block_size", "page_bytes", "span_tokens", "kind", "sharded", "draft", "spec", "extra"):
        others.append(with_group(plan, 0, **{name: None}))
    others.append(with_group(plan, 0, spec=None, members=(0,), member_layers=()))
    for name in plan.specs[0].__struct_fields__:
        others.append(structs.replace(plan, specs=(structs.replace(plan.specs[0], **{name: "?"}), *plan.specs[1:])))
    others.append(structs.replace(plan, specs=plan.specs[::-1]))
    wrong_pools = [structs.replace(pool, **{name: ()}) for name in pool.__struct_fields__]
    wrong_pools += [
        structs.replace(pool, records=(structs.replace(pool.records[0], **{name: None}), *pool.records[1:]))
        for name in pool.records[0].__struct_fields__
    ]
    others += [structs.replace(plan, placement=(one,)) for one in wrong_pools]
    others.append(structs.replace(plan, placement=()))
    for field, held in (("sizes", plan.sizes), ("capacity", plan.capacity)):
        others += [
            structs.replace(plan, **{field: structs.replace(held, **{name: None})}) for name in held.__struct_fields__
        ]
    found = {difference.path for other in others if (difference := outcome_difference(planned(plan), planned(other)))}
    refused = Refused(refusals=(Refusal(stage="group", type="ValueError", message="no"),), plan=plan)
    difference = outcome_difference(planned(plan), refused)
    assert difference is not None
    assert found | {difference.path} <= difference_paths()
    assert len(found) > 40


def test_records_may_be_cut_differently() -> None:
    plan = right_plan(CASE)
    assert plan.placement is not None
    pool = plan.placement[0]
    single = tuple(
        structs.replace(record, layers=(name,), offset=record.offset + at * record.layer_stride)
        for record in pool.records
        for at, name in enumerate(record.layers)
    )
    cut = structs.replace(plan, placement=(structs.replace(pool, records=single),))
    assert compare_with(planned(plan), planned(cut)) == []


def test_a_bare_refusal_where_one_is_due_is_left_to_the_laws() -> None:
    refusals = tuple(
        Refused(refusals=(Refusal(stage="group", type=name, message="no"),), plan=structs.replace(right_plan(model())))
        for name in ("ValueError", "AssertionError", "NotImplementedError")
    )
    assert compare_with(refusals[0], refusals[1]) == []
    assert [one.path for one in compare_with(refusals[0], refusals[2])] == ["group.refusal.type"]


def test_a_part_refused_in_the_same_way_is_the_same_breach() -> None:
    """The patched planner hands on what the unpatched one says of a part: no regression, whatever is expected."""
    plan = right_plan(model())
    due, other = (
        Refused(refusals=(Refusal(stage="group", type=name, message="no", frames=(f"vllm/x.py:{name}:1",)),), plan=plan)
        for name in ("NotImplementedError", "ValueError")
    )
    outcomes = (due, other)
    for expected in (due, planned(plan)):
        breaches = compare_with(expected, other)
        assert judge([], breaches, outcomes).name == "regression"
        assert judge([], breaches, outcomes, list(refusals_by(other))).name == "unfixed"
        assert judge([], breaches, outcomes, list(refusals_by(due))).name == "regression"


def _judged(unpatched: list[Breach], patched: list[Breach], unruled: str = "") -> str:
    outcomes = (planned(right_plan(CASE)), planned(right_plan(CASE)))
    return judge(unpatched, patched, outcomes, unruled=unruled).name


def test_the_table_of_verdicts() -> None:
    one = Breach(law="reference.group", path="groups.count", detail="")
    other = Breach(law="reference.group", path="groups[].layers", detail="")
    assert _judged([], []) == "agree"
    assert _judged([one], []) == "fixed"
    assert _judged([], [one]) == "regression"
    assert _judged([one], [one]) == "unfixed"
    assert _judged([one], [other]) == "dispute"
    assert _judged([], [], unruled="no rules for 0.99") == "inconclusive"
    assert _judged([], [one], unruled="no rules for 0.99") == "regression"


def test_a_patch_that_is_refused_before_a_stage_fixes_nothing_there() -> None:
    overlap = Breach(law="M5", path="placement", detail="")
    refused = Breach(law="reference.place", path="outcome", detail="", error="ValueError")
    answered = planned(right_plan(CASE))
    refusal = Refused(
        refusals=(Refusal(stage="place", type="ValueError", message=""),),
        plan=structs.replace(right_plan(CASE), placement=None),
    )  # fmt: skip
    told = judge([overlap], [refused], (answered, refusal))
    assert [(f.law, f.verdict) for f in told.findings] == [("reference.place", "dispute")]
    # A guard that nobody objects to is how such a fault is mended, and groups were made before the refusal.
    (mended,) = judge([overlap], [], (answered, refusal)).findings
    assert (mended.verdict, mended.beside) == ("fixed", "the patched planner refuses the model: ValueError")
    (mended,) = judge([overlap], [], (answered, answered)).findings
    assert mended.beside == ""
    grouped = Breach(law="G4", path="groups", detail="")
    told = judge([grouped], [refused], (answered, refusal))
    assert [(f.law, f.verdict) for f in told.findings] == [("reference.place", "dispute"), ("G4", "fixed")]
