"""The command ``replay-requests``: its exit codes and its JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.cli_common import chosen_cases
from fuzz.store import Store
from oracles.case import CaseError, dump_case
from tests.replay.request_cases import CLEAN, SINK


@pytest.mark.slow
def test_the_exit_code_tells_a_broken_case_from_a_clean_one(tmp_path: Path) -> None:
    seen = []
    for name, case in (("clean", CLEAN["full"]), ("sink", SINK)):
        file = tmp_path / f"{name}.json"
        file.write_bytes(dump_case(case))
        result = CliRunner().invoke(app, ["replay-requests", str(file), "--steps", "20", "--json"])
        report = json.loads(result.stdout)
        seen.append((result.exit_code, report["cases"][0]["result"], report["steps"]))
    assert seen == [(0, "CLEAN", 20), (1, "BROKEN", 20)]


def test_an_unknown_case_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="0123456789ab: no case of that id"):
        chosen_cases("0123456789ab", Store(tmp_path))


def test_all_is_the_corpus_and_the_store(tmp_path: Path) -> None:
    names = [name for name, _ in chosen_cases("all", Store(tmp_path))]
    assert len(names) > 100
    assert "regress/sink-merges-into-full.json" in names
