"""The corpus as a whole, and the harvested models in it."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fuzz.corpus import Entry, corpus_folder, load_corpus
from fuzz.harvest.samples import case_from_harvest, variants
from fuzz.planners.process import Planner, Question
from oracles.case import case_id, dump_case, is_mixed
from oracles.plan import Planned
from tests.corpus.asking import corpus_case, groups, plan

DATA = Path(__file__).parent / "data"
SAMPLE = "qwen3-next-80b_sm90_tp4_dcp2_mtp2"
RECORDED: dict[str, list[list[Any]]] = json.loads((DATA / "model_groups.json").read_text())
"""Groups that vLLM's engine made at the harvest: kind, wrapper or not, block in tokens, page in bytes, draft's or
not, and the places of its layers in the model."""

MODELS = sorted({name.rpartition(".")[0] for name in RECORDED})


@cache
def corpus() -> tuple[Entry, ...]:
    return tuple(load_corpus(corpus_folder()))


def test_every_file_is_in_canonical_form() -> None:
    for entry in corpus():
        assert (corpus_folder() / entry.name).read_bytes() == dump_case(entry.case), entry.name


def test_no_two_files_ask_the_same_question() -> None:
    names: dict[str, list[str]] = {}
    for entry in corpus():
        names.setdefault(case_id(entry.case), []).append(entry.name)
    assert [same for same in names.values() if len(same) > 1] == []


def test_the_models_stay_small() -> None:
    assert sum(path.stat().st_size for path in (corpus_folder() / "models").iterdir()) < 3_000_000


def test_every_harvested_model_has_a_mixed_form() -> None:
    mixed = {
        entry.name.split("/")[1].split(".dcp")[0]
        for entry in corpus()
        if entry.folder == "models" and is_mixed(entry.case)
    }
    assert mixed == set(MODELS)
    assert len(MODELS) == 26


def test_models_are_there_under_several_dcp_sizes() -> None:
    forms = [entry for entry in corpus() if entry.folder == "models" and ".dcp" in entry.name]
    sizes = Counter(entry.case.settings.dcp for entry in forms)
    assert sizes == {1: 52, 2: 34, 4: 50, 8: 34}


@pytest.mark.parametrize("form", sorted(variants(case_from_harvest(json.loads((DATA / f"{SAMPLE}.json").read_text())))))
def test_a_harvest_gives_its_committed_files(form: str) -> None:
    harvest = json.loads((DATA / f"{SAMPLE}.json").read_text())
    made = variants(case_from_harvest(harvest))[form]
    assert dump_case(made) == (corpus_folder() / f"models/{SAMPLE}.{form}.json").read_bytes()


def test_no_form_of_a_harvest_is_left_out() -> None:
    harvest = json.loads((DATA / f"{SAMPLE}.json").read_text())
    files = {path.name for path in (corpus_folder() / "models").glob(f"{SAMPLE}.*.json")}
    assert files == {f"{SAMPLE}.{form}.json" for form in variants(case_from_harvest(harvest))}


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_installed_planner_makes_the_recorded_groups(name: str, unpatched: Planner) -> None:
    case = corpus_case(f"models/{name}")
    places = {layer.name: at for at, layer in enumerate(case.layers)}
    made = [
        [
            group.kind,
            group.is_wrapper,
            group.block_size,
            group.page_bytes,
            group.draft,
            [places[layer] for layer in group.layers],
        ]
        for group in groups(plan(unpatched, case))
    ]
    assert made == RECORDED[name]


@pytest.mark.parametrize("model", MODELS)
def test_the_installed_planner_plans_every_form_of_a_model(model: str, unpatched: Planner) -> None:
    asked = [entry for entry in corpus() if entry.name.startswith(f"models/{model}.dcp")]
    answers = unpatched.ask([Question(entry.case) for entry in asked])
    assert [
        entry.name for entry, answer in zip(asked, answers, strict=True) if not isinstance(answer.outcome, Planned)
    ] == []
