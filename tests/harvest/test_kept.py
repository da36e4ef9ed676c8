"""The tables of configurations, the cases made from them, and the pinned plans."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.harvest.compare import changes_page, compare_models, forms, pin_models, pins_text
from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.configs import read_models
from fuzz.planners.process import Planner
from oracles.case import Case, kind_of, mode_of

CONFIGS = corpus_folder() / "configs"
MODELS = corpus_folder() / "models"
PINS = corpus_folder() / "plans"


def kept() -> dict[str, Case]:
    return {entry.name: entry.case for entry in load_corpus(MODELS) if entry.name.endswith(".sm90.json")}


def test_every_model_of_the_tables_has_its_case() -> None:
    assert {f"{model.name}.sm90.json" for model in read_models(CONFIGS)} == set(kept())


def test_the_tables_have_at_least_forty_architectures() -> None:
    assert len({model.config["architectures"][0] for model in read_models(CONFIGS)}) >= 40


def test_every_family_asked_for_is_there() -> None:
    kinds = Counter(kind for case in kept().values() for kind in {kind_of(spec) for spec in case.specs})
    assert set(kinds) == {
        "full", "sliding_window", "chunked_local", "mla", "sliding_window_mla", "mamba", "cross",
    }  # fmt: skip


def test_every_case_says_its_grade() -> None:
    grades = Counter(case.provenance.note.partition("grade: ")[2].partition(";")[0] for case in kept().values())
    assert set(grades) == {"simulated", "approximate"}


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    entry = '[[model]]\nname = "a"\nconfig = { model_type = "llama" }\n'
    (tmp_path / "f.toml").write_text(entry * 2)
    with pytest.raises(ConfigError, match="a: named twice"):
        read_models(tmp_path)


def test_an_unknown_field_of_a_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text('[[model]]\nname = "a"\ntensor = 4\nconfig = { model_type = "llama" }\n')
    with pytest.raises(ConfigError, match="tensor"):
        read_models(tmp_path)


def test_forms_are_every_model_with_and_without_a_draft_at_every_size() -> None:
    asked = forms(MODELS, (1, 2))
    per_model = Counter(one.model for one in asked)
    assert set(per_model.values()) == {4}
    assert {f"{name}.json" for name in per_model} == set(kept())
    drafted = [one.case for one in asked if one.draft != "none"]
    assert {sum(layer.draft for layer in case.layers) for case in drafted} == {5}
    assert {mode_of(case.spec_of(layer)) for case in drafted for layer in case.layers if layer.draft} == {"replicated"}


@pytest.mark.slow
def test_the_pinned_plans_are_those_of_the_installed_planner(unpatched: Planner) -> None:
    version = unpatched.hello().version
    pinned = PINS / f"vllm-{version}.txt"
    if not pinned.is_file():
        pytest.skip(f"no plans pinned for vLLM {version}: make them with kvfuzz pin-plans -o {pinned.name}")
    assert pins_text(pin_models(unpatched, MODELS, (1, 2, 4, 8)), version) == pinned.read_text()


@pytest.mark.slow
def test_the_page_of_plan_changes_is_made_anew_byte_for_byte(unpatched: Planner, patched: Planner) -> None:
    page = changes_page(compare_models(unpatched, patched, MODELS, (1, 2, 4, 8)))
    if unpatched.hello().version != "0.32.0":
        pytest.skip("docs/plan-changes.md is of vLLM 0.32.0")
    assert page == (corpus_folder().parent / "docs" / "plan-changes.md").read_text()
