"""The GitHub workflows: valid YAML of the right shape, and the gate's shell steps run on scripted branches.

The branches are those of a small repository made from the installed vLLM: a harmless refactoring, a defect, and a
change of grouping that is meant and accepted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.forks import MEANT, branch, vllm_repository

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def workflow(name: str) -> dict[Any, Any]:
    """A workflow file."""
    loaded = yaml.safe_load((WORKFLOWS / name).read_text())
    assert isinstance(loaded, dict)
    return loaded


@pytest.mark.parametrize("name", sorted(path.name for path in WORKFLOWS.glob("*.yml")))
def test_a_workflow_names_its_triggers_jobs_and_rights(name: str) -> None:
    loaded = workflow(name)
    assert loaded["name"]
    assert loaded[True], "YAML reads the key `on` as true"
    for job in loaded["jobs"].values():
        assert "permissions" in job
        assert "uses" in job or job["timeout-minutes"]
        for step in job.get("steps", ()):
            assert ("uses" in step) != ("run" in step)


def test_the_gate_hands_on_every_input_that_the_reusable_workflow_needs() -> None:
    given = workflow("gate.yml")["jobs"]["gate"]["with"]
    inputs = workflow("kvfuzz.yml")[True]["workflow_call"]["inputs"]
    assert {name for name, value in inputs.items() if value.get("required")} <= given.keys() <= inputs.keys()


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with vLLM's Python files on ``main``."""
    return vllm_repository(tmp_path_factory.mktemp("fork"))


def gate(fork: Path, patched: str) -> tuple[dict[str, int], str, float]:
    """Runs the shell steps of the gate: the exit code of each, the step summary, and the seconds taken."""
    summary = fork / "summary.md"
    summary.write_text("")
    shutil.rmtree(fork / ".kvfuzz", ignore_errors=True)
    environment = {
        **os.environ, "KVFUZZ": str(Path(sys.executable).with_name("kvfuzz")), "UNPATCHED": "git:.@main",
        "PATCHED": f"git:.@{patched}", "TIME": "0s", "KNOWN": "known.toml", "GITHUB_STEP_SUMMARY": str(summary),
    }  # fmt: skip
    begun = time.monotonic()
    codes: dict[str, int] = {}
    for step in workflow("kvfuzz.yml")["jobs"]["compare"]["steps"]:
        if step.get("name") not in ("Corpus", "Drawn cases", "Reproducer", "Plan changes"):
            continue
        if step["name"] == "Reproducer" and not any(codes.values()):
            continue
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=fork, env=environment, capture_output=True, text=True, check=False, timeout=900,
        )  # fmt: skip
        codes[step["name"]] = done.returncode
        print(step["name"], done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return codes, summary.read_text(), time.monotonic() - begun


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gate_passes_a_harmless_refactoring(fork: Path) -> None:
    branch(fork, "refactoring", lambda text: text + "\n\ndef _unused_helper():\n    return None\n")
    codes, summary, _ = gate(fork, "refactoring")
    assert set(codes.values()) == {0}
    assert "0 of" in summary, "the table of plan changes says that there are none"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gate_stops_a_defect_with_a_reproducer_in_the_summary(fork: Path) -> None:
    branch(fork, "defect", lambda text: text + DEFECT)
    codes, summary, _ = gate(fork, "defect")
    assert codes["Corpus"] == 1
    assert codes["Drawn cases"] == 1
    assert "regression" in summary
    assert "kvfuzz replay" in summary
    assert "import vllm" in summary or "from vllm" in summary, "the exported script"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gate_passes_a_change_that_was_accepted(fork: Path) -> None:
    branch(fork, "meant", lambda text: text + MEANT)
    kvfuzz = str(Path(sys.executable).with_name("kvfuzz"))
    accepted = fork / "known.toml"
    try:
        codes, _, _ = gate(fork, "meant")
        assert codes["Drawn cases"] == 1, "not accepted yet"
        subprocess.run(
            [kvfuzz, "corpus", "accept", "all", "--intended", "--new-only", "--reason", "meant", "--into", "."],
            cwd=fork, check=True, timeout=900, capture_output=True,
        )  # fmt: skip
        codes, summary, _ = gate(fork, "meant")
        assert set(codes.values()) == {0}
        assert "Plan changes" in summary
    finally:
        accepted.unlink(missing_ok=True)


DEFECT = """

_kvfuzz_original = get_kv_cache_configs


def get_kv_cache_configs(*args, **kwargs):
    configs = _kvfuzz_original(*args, **kwargs)
    for config in configs:
        config.num_blocks += 1
    return configs
"""
