"""The pytest plugin, run as its users run it: in a process of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.corpus import corpus_folder

pytestmark = pytest.mark.slow

CASES = ("examples/mla-and-window-draft.layer-outer.json", "regress/claim-counts-the-null-block.json")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with a small corpus and nothing else; kvfuzz's own list of known faults counts beside its empty one."""
    for name in CASES:
        target = tmp_path / "corpus" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(corpus_folder() / name, target)
    (tmp_path / "corpus" / "known.toml").touch()
    return tmp_path


def run_pytest(folder: Path, *arguments: str) -> tuple[int, str]:
    """pytest's exit code and output, in that folder."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_corpus_cases_are_items_with_readable_names(corpus: Path) -> None:
    code, output = run_pytest(corpus, "corpus", "-n", "2")
    assert code == 0, output
    assert "mla-and-window-draft.layer-outer" in output
    assert "2 passed" in output


def test_a_spoilt_planner_fails_with_a_case_and_the_line_that_asks_it_again(corpus: Path) -> None:
    canary = Path(__file__).resolve().parents[1] / "fuzz" / "canaries" / "extra_block.py"
    code, output = run_pytest(corpus, "corpus", f"--kv-patched=installed+isolate+{canary}")
    assert code == 1
    assert "regression: " in output
    (line,) = {line for line in output.splitlines() if line.startswith("kvfuzz replay ")} - {""} or {""}
    identity = line.split()[2]
    assert (corpus / ".kvfuzz" / "cases" / f"{identity}.json").is_file(), "kept before the planner was asked"
    assert f"--patched installed+isolate+{canary}" in line
    assert "Traceback" not in output


def test_property_tests_have_the_planners_and_the_reference(corpus: Path) -> None:
    (corpus / "test_mine.py").write_text(
        "from hypothesis import given, settings\n"
        "from fuzz.strategies import mixed_cases, Shape\n"
        "from oracles.reference import compare_with\n\n"
        "@settings(max_examples=10)\n"
        "@given(case=mixed_cases(Shape(max_layers=4)))\n"
        "def test_groups(patched, reference, kv_check, case):\n"
        "    kv_check(case)\n"
        "    assert patched.hello().version\n"
        "    compare_with(reference(case), kv_check(case).patched)\n"
    )
    code, output = run_pytest(corpus, "test_mine.py", "--hypothesis-profile=ci")
    assert code == 0, output


def test_files_outside_a_corpus_are_not_collected(tmp_path: Path) -> None:
    (tmp_path / "some.json").write_text("{}")
    code, output = run_pytest(tmp_path)
    assert code == 5, output
