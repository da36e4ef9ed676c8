"""What a campaign survives: ``kill -9`` of itself, of its lanes and of its planners, at random moments."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from fuzz.campaign.journal import Journal, read_state
from fuzz.case_files import read_case
from fuzz.store import Record, Store

MOMENTS = 20
CASES = 12000
ARGUMENTS = ("--jobs", "1", "--no-twins", "--no-canary", "--no-corpus", "--seed", "5", "--cases", str(CASES), "--json")

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]


def start(store: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A campaign in a process of its own."""
    with (store / "stderr.txt").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "fuzz.cli", "run", *arguments, "--json", "--store", str(store)],
            stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip


def finished(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """The report of a campaign that runs to its end."""
    output, _ = process.communicate(timeout=900)
    report: dict[str, Any] = json.loads(output)
    assert "error" not in report, report
    return report


def findings(report: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """By fingerprint and verdict: the least case, and how often the fault was seen."""
    return {f"{f['fingerprint']}:{f['verdict']}": (f["id"], f["seen"]) for f in report["findings"]}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same campaign with nothing killed."""
    return finished(start(tmp_path_factory.mktemp("untouched"), *ARGUMENTS))


def nothing_is_half_written(store: Path) -> None:
    """Every case, record and state decodes."""
    for folder in ("cases", "corpus"):
        for path in (store / folder).glob("[!.]*.json"):
            read_case(path)
    for path in (store / "findings").glob("[!.]*.json"):
        msgspec.json.decode(path.read_bytes(), type=Record)
    for path in (store / "runs").glob("*/state.json"):
        assert read_state(path) is not None


def told(store: Path) -> set[str]:
    """Fingerprints told so far."""
    return {w.fingerprint for run in (store / "runs").glob("*") for w in Journal(run).told()}


def has_begun(process: subprocess.Popen[bytes], store: Path, since: float) -> bool:
    """Whether the campaign has stored anything since then."""
    states = (store / "runs").glob("*/state.json")
    return process.poll() is not None or any(path.stat().st_mtime > since for path in states)


def test_a_campaign_killed_at_twenty_moments_loses_nothing(tmp_path: Path, untouched: dict[str, Any]) -> None:
    moments = random.Random(1)
    known: set[str] = set()
    arguments: tuple[str, ...] = ARGUMENTS
    for _ in range(MOMENTS):
        since = time.time()
        process = start(tmp_path, *arguments)
        while not has_begun(process, tmp_path, since):
            time.sleep(0.02)
        time.sleep(moments.uniform(0.0, 1.5))
        process.kill()
        process.wait()
        nothing_is_half_written(tmp_path)
        assert known <= told(tmp_path), "a fault that was told is told still"
        known = told(tmp_path)
        arguments = ("--resume",)
    report = finished(start(tmp_path, "--resume"))
    assert report["cases"] == CASES
    assert report["verdicts"] == untouched["verdicts"]
    assert findings(report) == findings(untouched)
    stored = {f"{r.finding.fingerprint}:{r.finding.verdict}" for r in Store(tmp_path).records()}
    assert stored >= findings(untouched).keys()


def planners_of(campaign: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The planners' processes that live now."""
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(campaign.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it ended while it was looked at
                if any("worker.py" in part for part in child.cmdline()):
                    found.append(child)
    return found


def test_planners_killed_at_twenty_moments_change_nothing(tmp_path: Path, untouched: dict[str, Any]) -> None:
    moments = random.Random(2)
    # A start takes 6 s or more, by the machine: a planner must be met while it starts, and also while it answers.
    longest = max(8.0, *(1.2 * planner["start_seconds"] for planner in untouched["planners"]))
    since = time.time()
    process = start(tmp_path, *ARGUMENTS)
    while not has_begun(process, tmp_path, since):
        time.sleep(0.02)
    killed = 0
    while process.poll() is None and killed < MOMENTS:
        time.sleep(moments.uniform(0.0, longest))
        workers = planners_of(process)
        if workers:
            moments.choice(workers).send_signal(signal.SIGKILL)
            killed += 1
    report = finished(process)
    assert killed == MOMENTS
    assert report["cases"] == CASES
    assert report["verdicts"] == untouched["verdicts"]
    assert findings(report) == findings(untouched)


def test_lanes_killed_are_replaced_and_their_cases_asked_again(tmp_path: Path, untouched: dict[str, Any]) -> None:
    since = time.time()
    process = start(tmp_path, *ARGUMENTS)
    while not has_begun(process, tmp_path, since):
        time.sleep(0.02)
    for _ in range(2):
        time.sleep(0.3)
        for child in psutil.Process(process.pid).children():
            child.kill()
        time.sleep(8.0)
    report = finished(process)
    assert report["lanes_lost"] == 2
    assert report["cases"] == CASES
    assert report["verdicts"] == untouched["verdicts"]
    assert findings(report).keys() == findings(untouched).keys()
