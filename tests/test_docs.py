"""The documentation says what works: every command in it is run, every option that it names exists.

The commands of a page run in order, in a repository of vLLM with a branch ``my-branch`` that changes grouping, as the
pages' readers have one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fuzz.cli import app
from fuzz.store import Store
from tests.forks import MEANT, branch, git, vllm_repository

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))
    if path.name != "CHANGELOG.md"
)
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s{2,}#.*$")
INLINE = re.compile(r"`(kvfuzz [^`]+)`")

SHORTER = {
    "--time 2m": "--time 2s",
    "--cases 400": "--cases 96",
    "pytest -n 2 corpus": "pytest -n 2 corpus -k examples",
    # This test is part of what `make test` runs. Only that both targets exist is seen here: `.ci/run` sets up and tests
    # as they do, and the main job itself is run by tests/test_wheel.py.
    "make fuzz": f"make -n -C '{ROOT}' fuzz",
    "make test": f"make -n -C '{ROOT}' test",
    "pip install 'kvfuzz[ray]'": f"pip install --dry-run --no-deps --no-build-isolation '{ROOT}[ray]'",
    # A cluster is made by tests/test_cluster.py; here only the options are read.
    "--ray auto": "--ray auto --help",
    "python device.py": f"cp '{ROOT}/fuzz/replay/device.py' . && python device.py",
}
"""What is written, and what is run in its place, so that a command takes seconds and leaves this machine as it is."""

WHOLE = ("README.md", "docs/guard-a-branch.md")
"""Pages that replay the whole corpus on branches: some minutes each."""


def commands(page: str) -> list[str]:
    """The commands in the console blocks of a page, without comments."""
    lines = [line for block in BLOCK.findall((ROOT / page).read_text()) for line in block.splitlines()]
    return [COMMENT.sub("", line.removeprefix("$ ")) for line in lines if line.startswith("$ ")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the repository ``vllm``: branches ``main`` and ``my-branch``, and the change as a diff."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "vllm").mkdir()
    fork = vllm_repository(folder / "vllm")
    branch(fork, "my-branch", lambda text: text + MEANT)
    (fork / "my-change.diff").write_text(git(fork, "diff", "main", "my-branch") + "\n")
    (fork / "corpus").symlink_to(ROOT / "corpus")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.long] * (page in WHOLE)) for page in PAGES if commands(page)],
)
def test_every_command_of_a_page_runs(page: str, home: Path) -> None:
    fork = home / "vllm"
    shutil.rmtree(fork / ".kvfuzz", ignore_errors=True)
    shutil.rmtree(fork / ".github", ignore_errors=True)
    environment = {**os.environ, "HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for written in commands(page):
        command = written
        for long, short in SHORTER.items():
            command = command.replace(long, short)
        if re.search(r"\bID\b", command):
            command = re.sub(r"\bID\b", a_finding(fork, environment), command)
        done = run(command, fork, environment)
        said = f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        # 1 says that something was found, which is what most of these commands are for.
        assert done.returncode in (0, 1), said
        assert "Traceback" not in done.stderr, said


def run(command: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs a shell command there."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def a_finding(fork: Path, environment: dict[str, str]) -> str:
    """The id of a regression in the store, after a short run where there is none yet."""
    store = Store(fork / ".kvfuzz")
    if not any(store.records()):
        run("kvfuzz run --unpatched git:.@main --patched git:.@my-branch --cases 96 --seed 1", fork, environment)
    return next(record.id for record in store.records() if record.finding.verdict == "regression")


def mentions() -> list[tuple[str, str]]:
    """Commands in running text and tables, with their page."""
    return [(page, said) for page in PAGES for said in INLINE.findall((ROOT / page).read_text())]


@pytest.mark.parametrize(("page", "said"), mentions())
def test_a_command_named_in_the_text_has_these_options(page: str, said: str) -> None:
    words = said.split()[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words:
        names = words.pop(0).split("\\|")
        for name in names:
            assert name in command.commands, f"{page}: kvfuzz has no command {name!r}"
        command = command.commands[names[0]]
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-") and word != "-":
            assert word.partition("=")[0] in options, f"{page}: `{said}` has no option {word}"
