"""``harvest``, ``check`` and ``compare-plans`` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oracles.case import load_case
from tests.harvest.test_process import DFLASH, LLAMA, SPARSE
from tests.planners.owners import BY_CONFIG, BY_PLATFORM, owning_diff

ROOT = Path(__file__).parents[2]
GROUPING = '''
"""An overlay that puts every layer of a plain group into a group of its own."""

import dataclasses


def apply(planner):
    original = planner.get_kv_cache_groups

    def split(*args, **kwargs):
        return [
            dataclasses.replace(group, layer_names=[name])
            for group in original(*args, **kwargs)
            for name in group.layer_names
        ]

    planner.get_kv_cache_groups = split
'''


def kvfuzz(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fuzz.cli", *args], cwd=folder, capture_output=True, check=False, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )  # fmt: skip


def write(folder: Path, config: dict[str, Any], name: str = "config.json") -> str:
    (folder / name).write_text(json.dumps(config))
    return name


@pytest.mark.parametrize("command", ["harvest", "check"])
def test_a_folder_without_a_configuration_is_a_usage_error(command: str, tmp_path: Path) -> None:
    done = kvfuzz(command, str(tmp_path), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no config.json in this folder" in done.stderr


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "llama", "num_hidden_layers": 10**11}, "num_hidden_layers: 100000000000 is not between"),
        ({"model_type": "llama", "a\x1b[2Jb": 1}, r"has the field 'a\x1b[2Jb'"),
        ({"model_type": ["llama"] * 200_000}, "model_type: 200,000 entries"),
        ({"hidden_size": 4}, "architectures: missing"),
    ],
)
def test_a_hostile_configuration_is_a_usage_error(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    done = kvfuzz("check", write(tmp_path, config), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tp", "4", "--dcp", "3"), "--dcp 3"),
        (("--platform", "tpu"), "--platform 'tpu'"),
        (("--draft", "nowhere.json"), "--draft nowhere.json"),
        (("--draft-method", "mtp"), "needs --draft"),
    ],
)
def test_an_option_that_cannot_be_is_named(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    done = kvfuzz("check", write(tmp_path, LLAMA), *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


@pytest.mark.slow
def test_a_configuration_that_vllm_refuses_is_refused_in_its_words(tmp_path: Path) -> None:
    unknown = write(tmp_path, {**LLAMA, "architectures": ["NoSuchModel"]})
    done = kvfuzz("check", unknown, "--platform", "cpu", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Model architectures ['NoSuchModel'] are not supported" in done.stderr


@pytest.mark.slow
def test_a_harvest_is_a_case_file_with_its_grade(tmp_path: Path) -> None:
    done = kvfuzz("harvest", write(tmp_path, LLAMA), "-o", "case.json", "--json", folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["grade"] == "exact"
    case = load_case((tmp_path / "case.json").read_bytes())
    assert len(case.layers) == 6
    assert case.provenance.note.startswith("grade: exact;")


@pytest.mark.slow
def test_check_tells_what_the_patch_changes(tmp_path: Path) -> None:
    draft = write(tmp_path, DFLASH, "draft.json")
    done = kvfuzz(
        "check", write(tmp_path, LLAMA), "--draft", draft, "--draft-method", "dflash", "--tp", "16", "--dcp", "2",
        "--json", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (view,) = told["views"]
    assert view["verdict"] == "fixed"
    assert [group["layers"] for group in view["unpatched"]["groups"]] == [2, 2, 2, 2]
    assert [group["layers"] for group in view["patched"]["groups"]] == [6, 2]
    assert "4 groups become 2" in told["sentence"]


@pytest.mark.slow
def test_check_shows_a_row_for_the_draft_what_was_replayed_and_one_sentence(tmp_path: Path) -> None:
    draft = write(tmp_path, DFLASH, "draft.json")
    done = kvfuzz(
        "check", write(tmp_path, LLAMA, "llama.json"), "--draft", draft, "--draft-method", "dflash", "--tp", "16",
        "--dcp", "2", "--platform", "cuda-sm90", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "×" in line and "groups" not in line]
    assert rows[2:] == [
        ["1", "×", "6", "target", "full", "sharded", "16", "32", "8,192", "0.0", "%"],
        ["1", "×", "2", "draft", "full", "replicated", "16", "16", "8,192", "66.7", "%"],
    ]
    *tables, replay, sentence = done.stdout.splitlines()
    assert max(len(line) for line in tables if line.startswith(" ")) <= 80, "fits a terminal"
    assert replay == (
        "Replay: 4 pools painted on the CPU and read back; the largest of 8.0 GiB for the 64.0 planned; "
        "every page kept its bytes."
    )
    assert sentence == (
        "llama (simulated) at DCP 2: starts; the patch: 4 groups become 2, a block takes 16,384 → 49,152 bytes, "
        "capacity -44.4 %; no new finding (fixed)."
    )


@pytest.mark.slow
def test_a_model_that_owns_its_grouping_is_checked_through_its_class(tmp_path: Path) -> None:
    diff = owning_diff(tmp_path)
    config = write(tmp_path, LLAMA)
    done = kvfuzz(
        "check", config, "--platform", "cpu", "--unpatched", "pypi:0.33.0", "--patched", f"pypi:0.33.0+{diff}",
        "--max-model-len", str(BY_CONFIG), "--block-size", "128", folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "owners.diff, grouped by the model class LlamaForCausalLM" in done.stdout
    assert "no rules say how the model class LlamaForCausalLM should group" in done.stdout
    again = kvfuzz("harvest", config, "--planner", f"pypi:0.33.0+{diff}", "-o", "case.json", folder=tmp_path)
    assert "grouped by its own class" in again.stdout
    case = load_case((tmp_path / "case.json").read_bytes())
    assert case.settings.architecture == "LlamaForCausalLM"


@pytest.mark.slow
def test_what_a_class_that_owns_its_grouping_lacks_is_said_aloud(tmp_path: Path) -> None:
    done = kvfuzz(
        "check", write(tmp_path, LLAMA), "--platform", "cpu", "--unpatched", "pypi:0.33.0", "--patched",
        f"pypi:0.33.0+{owning_diff(tmp_path)}", "--max-model-len", str(BY_PLATFORM), folder=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "may need what is not here, its platform" in done.stdout
    assert ": inconclusive: cannot be said" in done.stdout.splitlines()[-1]


def test_a_builder_for_a_tree_without_builders_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "kvfuzz.toml").write_text('[planners.mine]\naddress = "installed"\nbuilder = "os.path:join"\n')
    done = kvfuzz("compare-plans", "--patched", "mine", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "planner 'mine': builder: this vLLM has no KVCacheConfigBuilder" in done.stderr


@pytest.mark.slow
def test_a_patch_that_splits_groups_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "split.py").write_text(GROUPING)
    done = kvfuzz(
        "check", write(tmp_path, SPARSE), "--patched", f"installed+{tmp_path}/split.py", folder=tmp_path
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "finding" in done.stdout


@pytest.mark.slow
def test_compare_plans_needs_harvested_models(tmp_path: Path) -> None:
    done = kvfuzz("compare-plans", "--models", str(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert "no harvested model here" in done.stderr
