"""Models that own their grouping, and builders that a platform names (0.33)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from msgspec import structs

from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Pair
from fuzz.planners.address import AddressError
from fuzz.planners.process import Planner, PlannerError, Question, UnusableEntry
from fuzz.planners.trees import Config, Launch, PlannerEntry, open_launch
from oracles.case import Case, Settings, Worker
from oracles.derived import renamed
from oracles.plan import Outcome, Planned, Refused, Unsupported, owner_of, plan_of
from tests.harvest.test_process import LLAMA
from tests.models import dense
from tests.planners.owners import ALONE, BY_CONFIG, BY_NAME, BY_PLATFORM, LOSING, SHUT, owning_diff

BUILDERS = "vllm.v1.core.kvfuzz_builders"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"pypi:0.33.0+{owning_diff(tmp_path_factory.mktemp('owners'))}"


@pytest.fixture(scope="module")
def owning(tree: str) -> Iterator[Planner]:
    with Planner(open_launch(tree, Config())) as planner:
        yield planner


def with_builder(tree: str, builder: str) -> Launch:
    return open_launch("mine", Config(planners={"mine": PlannerEntry(address=tree, builder=builder)}))


@pytest.fixture(scope="module")
def built(tree: str) -> Iterator[Planner]:
    with Planner(with_builder(tree, f"{BUILDERS}:Alone")) as planner:
        yield planner


def model(length: int = ALONE, architecture: str | None = "LlamaForCausalLM") -> Case:
    settings = Settings(model_len=length, architecture=architecture, workers=(Worker(memory=2**32),))
    return structs.replace(dense(count=6), settings=settings)


def ask(planner: Planner, case: Case, config: str = "") -> Outcome:
    (answer,) = planner.ask([Question(case, config=config)])
    return answer.outcome


def groups(outcome: Outcome) -> list[int]:
    plan = plan_of(outcome)
    assert plan is not None
    return [len(group.layers) for group in plan.groups or ()]


@pytest.mark.slow
def test_a_model_is_grouped_by_its_own_class(owning: Planner) -> None:
    outcome = ask(owning, model())
    assert isinstance(outcome, Planned)
    assert groups(outcome) == [1] * 6
    assert owner_of(outcome) == "the model class LlamaForCausalLM"


@pytest.mark.slow
def test_a_class_that_inherits_the_hook_has_it(owning: Planner) -> None:
    assert owner_of(ask(owning, model(architecture="MistralForCausalLM"))) == "the model class MistralForCausalLM"


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [None, "Qwen2ForCausalLM"])
def test_other_models_are_grouped_by_the_rules(architecture: str | None, owning: Planner) -> None:
    outcome = ask(owning, model(architecture=architecture))
    assert groups(outcome) == [6]
    assert owner_of(outcome) == ""


@pytest.mark.slow
def test_an_architecture_that_the_tree_has_not_is_told(owning: Planner) -> None:
    outcome = ask(owning, model(architecture="NoSuchModel"))
    assert isinstance(outcome, Unsupported)
    assert outcome.field == "settings.architecture"
    assert "no model class NoSuchModel" in outcome.reason


@pytest.mark.slow
def test_what_a_case_does_not_carry_is_told_and_never_made_up(owning: Planner) -> None:
    outcome = ask(owning, model(BY_CONFIG))
    assert isinstance(outcome, Unsupported)
    assert outcome.reason == (
        "the model class LlamaForCausalLM reads hf_config.num_hidden_layers, which the case does not carry"
    )


@pytest.mark.slow
def test_a_class_reads_the_models_configuration_where_it_is_at_hand(owning: Planner) -> None:
    assert groups(ask(owning, model(BY_CONFIG), json.dumps(LLAMA))) == [6]
    assert groups(ask(owning, model(BY_CONFIG), json.dumps({**LLAMA, "num_hidden_layers": 5}))) == [3, 3]
    assert isinstance(ask(owning, model(BY_CONFIG)), Unsupported)


@pytest.mark.slow
def test_a_class_that_needs_its_platform_gives_no_finding(owning: Planner) -> None:
    outcome = ask(owning, model(BY_PLATFORM))
    assert isinstance(outcome, Unsupported)
    assert "may need what is not here" in outcome.reason
    assert "torch_of_another_platform" in outcome.reason


@pytest.mark.slow
def test_a_class_may_refuse(owning: Planner) -> None:
    outcome = ask(owning, model(SHUT))
    assert isinstance(outcome, Refused)
    assert (outcome.first.type, outcome.first.message) == ("NotImplementedError", "not for models of this length")


@pytest.mark.slow
def test_laws_that_hold_for_any_plan_judge_a_models_own(owning: Planner) -> None:
    verdict = Pair.of(owning, owning, "native").ask(model()).verdict
    assert (verdict.name, verdict.findings) == ("inconclusive", ())
    assert verdict.reason == "no rules say how the model class LlamaForCausalLM should group"
    broken = Pair.of(owning, owning, "native").ask(model(LOSING)).verdict
    assert (broken.name, broken.findings[0].law, broken.findings[0].error) == ("unfixed", "R1", "AssertionError")


@pytest.mark.slow
def test_a_class_may_know_its_layers_by_name(owning: Planner) -> None:
    assert groups(ask(owning, model(BY_NAME))) == [6]
    assert groups(ask(owning, renamed(model(BY_NAME)))) == [1] * 6
    judged = FocusedPair(Pair.of(owning, owning, "native"), None).ask(model(BY_NAME))
    assert judged.verdict.findings == ()


@pytest.mark.slow
def test_a_builder_named_for_a_planner_plans(built: Planner) -> None:
    outcome = ask(built, model(architecture=None))
    assert isinstance(outcome, Planned)
    assert groups(outcome) == [1] * 6
    assert owner_of(outcome) == f"the builder {BUILDERS}.Alone"


@pytest.mark.slow
def test_a_builder_that_needs_its_platform_gives_no_finding(built: Planner) -> None:
    outcome = ask(built, model(BY_PLATFORM, None))
    assert isinstance(outcome, Unsupported)
    assert outcome.field == "builder"


@pytest.mark.slow
def test_a_builder_that_leaves_grouping_alone_asks_the_models_class(tree: str) -> None:
    with Planner(with_builder(tree, f"{BUILDERS}.AsItIs")) as planner:
        assert groups(ask(planner, model())) == [1] * 6
        assert groups(ask(planner, model(architecture=None))) == [6]


@pytest.mark.slow
def test_a_builder_of_several_allocations_is_told(tree: str) -> None:
    with Planner(with_builder(tree, f"{BUILDERS}.Apart")) as planner:
        outcome = ask(planner, model(architecture=None))
    assert isinstance(outcome, Unsupported)
    assert "several allocations" in outcome.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("builder", "words"),
    [
        (f"{BUILDERS}:Missing", "builder: vllm.v1.core.kvfuzz_builders.Missing cannot be imported"),
        (f"{BUILDERS}:Nothing", "is no subclass of vLLM's KVCacheConfigBuilder"),
    ],
)
def test_a_builder_that_cannot_be_used_is_a_usage_error(builder: str, words: str, tree: str) -> None:
    with Planner(with_builder(tree, builder)) as planner, pytest.raises(UnusableEntry, match=words):
        planner.hello()
    assert issubclass(UnusableEntry, PlannerError)


def test_a_builder_for_a_tree_without_builders_is_a_usage_error() -> None:
    with pytest.raises(AddressError, match=r"builder: this vLLM has no KVCacheConfigBuilder; name a tree of 0.33"):
        with_builder("installed", "vllm.v1.core.kv_cache_planning:DefaultKVCacheConfigBuilder")


@pytest.mark.parametrize("builder", ["", "Alone", "a b:C", "module:", "os.path:join()", "../x:Y"])
def test_a_builder_is_named_as_a_class_of_a_module(builder: str) -> None:
    with pytest.raises(AddressError, match=r"write module:Class or module\.Class"):
        with_builder("installed", builder)


def test_a_tree_without_hooks_is_asked_as_before(unpatched: Planner) -> None:
    outcome = ask(unpatched, model(architecture="NoSuchModel"))
    assert isinstance(outcome, Planned)
    assert owner_of(outcome) == ""
