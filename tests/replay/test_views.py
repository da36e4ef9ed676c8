"""vLLM's own views of a planned pool, against our arithmetic."""

from __future__ import annotations

import random

from msgspec import structs

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Answer, Viewed
from fuzz.replay.memory.views import views_against
from fuzz.strategies import Shape, draw_case, vocabulary_of
from oracles.case import Case
from oracles.plan import Plan, plan_of
from tests.oracles.models import FULL, MLA, STATE, WINDOW, model, settings, staged


def viewed(planner: Planner, case: Case) -> tuple[Plan, Answer]:
    (answer,) = planner.ask([Question(case, "views")])
    plan = plan_of(answer.outcome)
    assert plan is not None
    return plan, answer


def test_views_lie_on_the_pages_in_every_layout(either: Planner) -> None:
    for layout in ("LBNHC", "LBHNC", "LHBNC", "BLNHC", "BLHNC", "BHLNC"):
        case = model((FULL, 3), (WINDOW, 2), under=settings(layout=layout))
        plan, answer = viewed(either, case)
        assert len(answer.views[0].views) == 5
        assert views_against(case, plan, answer.views) == ()


def test_views_of_mixed_pages_lie_on_the_pages(unpatched: Planner) -> None:
    case = model((MLA, 4), (WINDOW, 2), (STATE, 6), under=settings(layout="BLNHC", mamba_mode="align"))
    plan, answer = viewed(unpatched, case)
    assert len(answer.views[0].views) == 12
    assert views_against(case, plan, answer.views) == ()


def test_a_pool_too_large_to_allocate_has_views_without_memory(unpatched: Planner) -> None:
    case = model((FULL, 2), under=settings(workers=(structs.replace(settings().workers[0], memory=2**36),)))
    plan, answer = viewed(unpatched, case)
    assert answer.views[0].device == "meta"
    assert views_against(case, plan, answer.views) == ()


def test_drawn_plans_have_views_where_their_pages_are(unpatched: Planner) -> None:
    shape = Shape(vocabulary=vocabulary_of(unpatched.hello()))
    cases = [draw_case(random.Random(f"views {at}"), shape) for at in range(60)]
    answers = unpatched.ask([Question(case, "views") for case in cases])
    layers = 0
    for case, answer in zip(cases, answers, strict=True):
        plan = plan_of(answer.outcome)
        if plan is not None:
            layers += sum(len(one.views) for one in answer.views)
            assert {breach.error for breach in views_against(case, plan, answer.views)} <= {"no group", "RuntimeError"}
    assert layers > 500


def test_a_view_elsewhere_is_a_breach(unpatched: Planner) -> None:
    case = model((FULL, 2))
    plan, answer = viewed(unpatched, case)
    (worker,) = answer.views
    first, second = worker.views
    for wrong, words in (
        (structs.replace(second, offset=second.offset + 2), "begins at byte"),
        (structs.replace(second, shape=(7, *second.shape[1:])), "has 7 blocks of"),
        (structs.replace(second, strides=(32_768, *second.strides[1:])), "steps 32768 bytes from block to block"),
        (structs.replace(second, shape=(*second.shape[:3], 2 * second.shape[3])), "bytes at once"),
    ):
        views = [Viewed(device="cpu", views=(first, wrong))]
        (breach,) = views_against(case, plan, views)
        assert (breach.law, breach.path) == ("P7", "placement[].views.place")
        assert words in breach.detail
    (missing,) = views_against(case, plan, [Viewed(device="cpu", views=(first,))])
    assert missing.detail == "worker 0: vLLM makes no view of model.0.1"


def test_a_view_of_nothing_is_a_breach(unpatched: Planner) -> None:
    case = read_case(corpus_folder() / "regress/hidden-state-block-holds-no-state.json")
    plan, answer = viewed(unpatched, case)
    (breach,) = views_against(case, plan, answer.views)
    assert (breach.law, breach.path) == ("P7", "placement[].views.empty")
    assert [view.offset for view in answer.views[0].views] == [0, 0]


def test_a_record_of_another_stages_layer_has_no_view(unpatched: Planner) -> None:
    """The worker would look for the layer's group and find none: it ends at start-up."""
    case = staged([(FULL, 1)], [(STATE, 1)], under=settings(layout="BLHNC", mamba_mode="align"))
    plan, answer = viewed(unpatched, case)
    breaches = views_against(case, plan, answer.views)
    assert [(one.path, one.error) for one in breaches] == [("placement[].views.error", "no group")] * len(breaches)
