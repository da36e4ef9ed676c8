"""The command ``replay-requests``: its exit codes, its JSON, and what it keeps of drawn cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.cli_common import Failure, chosen_cases
from fuzz.cli_requests import replay_requests_command
from fuzz.store import Store
from oracles.case import CaseError, dump_case
from tests.replay.request_cases import CLEAN, SINK

RAISES = f"installed+{Path(__file__).parent / 'overlays' / 'raises_midway.py'}"


def told(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, ["replay-requests", *arguments, "--steps", "20", "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.slow
def test_the_exit_code_tells_a_broken_case_from_a_clean_and_a_known_one(tmp_path: Path) -> None:
    seen = []
    for name, case, planner in (
        ("clean", CLEAN["full"], "installed"), ("sink", SINK, "installed"), ("broken", CLEAN["full"], RAISES),
    ):  # fmt: skip
        file = tmp_path / f"{name}.json"
        file.write_bytes(dump_case(case))
        code, report = told(str(file), "--planner", planner, "--store", str(tmp_path))
        seen.append((code, report["cases"][0]["result"], report["steps"], [one["known"] for one in report["faults"]]))
    assert seen == [(0, "CLEAN", 20, []), (0, "KNOWN", 20, [True]), (1, "BROKEN", 20, [False])]


@pytest.mark.slow
def test_drawn_cases_are_counted_and_the_smallest_of_each_fault_is_kept(tmp_path: Path) -> None:
    arguments = ("--cases", "40", "--draw-seed", "3", "--planner", RAISES, "--store", str(tmp_path))
    code, report = told(*arguments)
    assert told(*arguments) == (code, report)
    (fault, *rest) = [one for one in report["faults"] if not one["known"] and one["severity"] == "fault"]
    assert (code, fault["law"], fault["path"], rest) == (1, "Q1", "serve.allocate", [])
    assert fault["seen"] == report["counts"]["BROKEN"] > 1
    assert report["cases"] == []
    assert sum(report["counts"].values()) == report["drawn"] == 40
    (record,) = Store(tmp_path).records(fault["id"])
    assert (record.finding.fingerprint, record.finding.summary) == (fault["fingerprint"], fault["summary"])
    assert (record.unpatched, record.patched, record.contract) == (RAISES, RAISES, "native")
    # The case that is kept shows the fault when it is asked for by its id.
    code, again = told(fault["id"], "--planner", RAISES, "--store", str(tmp_path))
    assert (code, [one["fingerprint"] for one in again["faults"]]) == (1, [fault["fingerprint"]])


def test_nothing_to_serve_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="name a case or all, or draw some by --cases N") as caught:
        replay_requests_command(None, store=tmp_path)
    assert caught.value.code == 2


def test_an_unknown_case_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="0123456789ab: no case of that id"):
        chosen_cases("0123456789ab", Store(tmp_path))


def test_all_is_the_corpus_and_the_store(tmp_path: Path) -> None:
    names = [name for name, _ in chosen_cases("all", Store(tmp_path))]
    assert len(names) > 100
    assert "regress/sink-merges-into-full.json" in names
