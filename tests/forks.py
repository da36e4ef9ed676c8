"""Small repositories of vLLM with branches, made from the installed one."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

PLANNER = "vllm/v1/core/kv_cache_utils.py"

MEANT = """

_kvfuzz_original = get_kv_cache_groups


def get_kv_cache_groups(vllm_config, kv_cache_spec):
    return list(reversed(_kvfuzz_original(vllm_config, kv_cache_spec)))
"""
"""A change of grouping that is meant: each group is right, their order is another."""


def git(folder: Path, *arguments: str) -> str:
    """Runs git there."""
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def vllm_repository(folder: Path) -> Path:
    """Makes ``folder`` a repository with vLLM's Python files on ``main``, without the version, which a build writes."""
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    shutil.copytree(
        Path(found.origin).parent, folder / "vllm",
        ignore=lambda _, names: [
            n for n in names if n == "_version.py" or ("." in n and not n.endswith((".py", ".json")))
        ],
    )  # fmt: skip
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    return folder


def branch(fork: Path, name: str, edit: Callable[[str], str]) -> None:
    """A branch off ``main`` with an edited planner."""
    git(fork, "checkout", "-qB", name, "main")
    path = fork / PLANNER
    before = path.read_text()
    after = edit(before)
    assert after != before
    path.write_text(after)
    git(fork, "commit", "-qam", name)
    git(fork, "checkout", "-q", "main")
