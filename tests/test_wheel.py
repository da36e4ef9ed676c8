"""The wheel: it builds, its console script works from an empty folder, and its corpus travels inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)], check=True
    )
    (made,) = folder.glob("kvfuzz-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's packages and console script."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([*PIP, "install", "--no-deps", "--target", str(folder), str(wheel)], check=True)
    return folder


def kvfuzz(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the installed console script there; its packages stand before those of this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [str(installed / "bin" / "kvfuzz"), *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_what_runs_is_the_wheel_and_not_this_checkout(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import fuzz, oracles; print(fuzz.__file__, oracles.__file__, sep='\\n')"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(Path(line).is_relative_to(installed) for line in done.stdout.split())


def test_the_wheel_is_typed_and_brings_its_corpus(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"fuzz/py.typed", "oracles/py.typed", "fuzz/_corpus/known.toml"} <= names
    assert not {name for name in names if name.startswith("tests/")}


def test_the_console_script_runs_the_main_job_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = kvfuzz(installed, tmp_path, "run", "--cases", "24", "--seed", "0", "--no-minimise", "--json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["cases"] > 24, "the corpus of the wheel is asked first"
    assert report["corpus_cases"] > 0


def test_the_corpus_of_the_wheel_can_be_replayed(installed: Path, tmp_path: Path) -> None:
    case = installed / "fuzz" / "_corpus" / "examples" / "mla-and-window-draft.layer-outer.json"
    done = kvfuzz(installed, tmp_path, "replay", str(case))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FIXED" in done.stdout
