"""Runs exported scripts and tests where kvfuzz cannot be imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.export import Diagnosis, export
from fuzz.pair import Pair
from fuzz.planners import fetch
from fuzz.planners.trees import Config, open_launch
from oracles.law import Contract

HOSTILE = (
    'it\'s."quoted".0',
    '"""; raise SystemExit(0); """.1',
    "a\\b.2",
    "{{ 7 * 7 }}{% x %}.3",
    "`|<b>*é.4",
    "# no: 'x'.5",
)
"""Names that end strings, comments, templates, tables and lines where they are not quoted."""

BLOCKED = """
import sys


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("fuzz", "oracles"):
            raise ImportError(f"{name} is blocked")


sys.meta_path.insert(0, Blocked())
"""
"""Python runs a module of this name when it starts, so that a script's own processes are kept from kvfuzz too."""


def alone(code: str, folder: Path, tree: Path | None) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` where kvfuzz cannot be imported, with ``tree`` ahead of the installed vLLM."""
    start = folder / "start"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(BLOCKED)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST", "VLLM_"))}
    added = {
        "PYTHONPATH": os.pathsep.join(map(str, (start, tree) if tree else (start,))),
        "VLLM_LOGGING_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, env=kept | added
    )


RUN_ALL = """
import json, runpy
codes = {}
for name in NAMES:
    try:
        runpy.run_path(f"{name}.py", run_name="__main__")
    except SystemExit as end:
        codes[name] = end.code
print("codes", json.dumps(codes))
"""

PYTEST = """
import pytest, sys
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", "/dev/null", "."]))
"""


def codes_told(code: str, folder: Path, tree: Path | None) -> tuple[Any, str]:
    """The JSON that ``code``, run alone, prints on a line after the word ``codes``, and all that it prints."""
    done = alone(code, folder, tree)
    lines = [line for line in done.stdout.splitlines() if line.startswith("codes ")]
    assert lines, done.stdout + done.stderr
    return json.loads(lines[0].removeprefix("codes ")), done.stdout


def exit_codes(folder: Path, names: Iterable[str], tree: Path | None) -> tuple[dict[str, int], str]:
    """The exit code of each script in ``folder``, and what all of them print."""
    return codes_told(f"NAMES = {list(names)}\n{RUN_ALL}", folder, tree)


def write_exports(folder: Path, name: str, diagnosis: Diagnosis) -> None:
    """The script and the test of a finding."""
    (folder / f"{name}.py").write_text(export(diagnosis, "script"))
    (folder / f"test_{name}.py").write_text(export(diagnosis, "pytest"))


@contextmanager
def started(patched: str, contract: Contract) -> Iterator[Pair]:
    """The installed vLLM and ``patched``, started."""
    pair = Pair(
        open_launch("installed", Config()), open_launch(patched, Config()), contract, case_seconds=20.0, memory=2**30
    )
    pair.start()
    yield pair
    pair.close()


def copy_of_vllm(target: Path, addition: str) -> Path:
    """A copy of the installed vLLM in ``target``, with lines added at the end of its planner."""
    found = subprocess.run(
        [sys.executable, "-c", "import importlib.util as u; print(u.find_spec('vllm').submodule_search_locations[0])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    fetch.link_package(Path(found.stdout.strip()), target / "vllm")
    planner = target / "vllm" / "v1" / "core" / "kv_cache_utils.py"
    source = planner.read_text()
    planner.unlink()  # a link: the installed file must stay as it is
    planner.write_text(f"{source}\n\n{addition}")
    return target
