"""The commands as a user meets them: exit codes, JSON, and errors that leave nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table

from fuzz.cli_common import err, out
from oracles.case import case_id, dump_case
from tests.models import dense, split_by_draft

ROOT = Path(__file__).parent.parent
OVERLAYS = ROOT / "tests" / "planners" / "overlays"


def kvfuzz(*args: str, folder: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Runs the command in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.cli", *args],
        cwd=folder, input=stdin, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def document(done: subprocess.CompletedProcess[str]) -> Any:
    """Standard output as the one JSON document it must be."""
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "file: not a JSON object"),
        (b'{"format":7}', "format: 7 is not known here"),
        (b'{"format":1,"specs":[{"kind":"full","block_size":-3}],"layers":[]}', "specs[0].block_size"),
        (b'{"format":1,"specs":[],"layers":[{"name":"a\\u001b[2J","spec":0}]}', "layers[0].spec"),
    ],
)
def test_a_hostile_case_file_is_a_usage_error_and_writes_nothing(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "case.json").write_bytes(content)
    done = kvfuzz("plan", "case.json", folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "case.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["case.json"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("plan", "missing.json"), "cannot be read"),
        (("plan", "0123456789ab"), "no case of that id"),
        (("run", "--time", "soon"), "is not a duration"),
        (("run", "--time", "0s"), "leaves no time to draw a case"),
        (("run", "--cases", "1", "--contract", "both"), "choose native or isolate"),
        (("run", "--cases", "1", "--patched", "pypi:latest!"), "is no version"),
        (("run", "--cases", "1", "--patched", "path:/nowhere"), "does not exist"),
        (("run", "--cases", "-1"), "--cases"),
        (("frobnicate",), "No such command"),
    ],
)
def test_a_usage_error_names_what_is_wrong(tmp_path: Path, args: tuple[str, ...], message: str) -> None:
    done = kvfuzz(*args, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    done = kvfuzz("--version", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"kvfuzz {version('kvfuzz')}\n")


def test_the_schema_is_one_document(tmp_path: Path) -> None:
    assert document(kvfuzz("schema", folder=tmp_path))["title"] == "kvfuzz case, format 1"


def test_every_law_is_listed_with_its_reason(tmp_path: Path) -> None:
    laws = {law["name"]: law for law in document(kvfuzz("laws", "--json", folder=tmp_path))["laws"]}
    assert {"G1", "G2", "G6", "G7", "G9", "G10", "R1", "Q7", "P7", "reference"} <= laws.keys()
    assert all(law["reason"] for law in laws.values())


def test_plan_reads_standard_input_and_shows_both_planners(tmp_path: Path) -> None:
    case = split_by_draft()
    done = kvfuzz("plan", "-", "--json", folder=tmp_path, stdin=dump_case(case))
    assert done.returncode == 0, done.stderr
    answer = document(done)
    assert answer["case"] == case_id(case)
    before, after = answer["planners"]
    assert [len(group["layers"]) for group in before["groups"]] == [2, 2, 2]
    assert [(g["kind"], len(g["layers"]), g["block_size"], g["span_tokens"], g["page_bytes"], g["mode"]) for g in
            after["groups"]] == [
        ("mla", 4, 64, 256, 73728, "sharded"),
        ("sliding_window", 2, 16, 16, 65536, "replicated"),
    ]  # fmt: skip
    assert {stage: answer["outcome"] for stage, answer in before["stages"].items()} == {
        "group": "ok", "place": "ok", "size": "ok", "capacity": "ok",
    }  # fmt: skip
    assert after["stages"]["place"]["type"] == "ValueError"
    assert before["pool"][0]["num_blocks"] == 7281
    assert before["sizes"]["scheduler_block"] == 256
    assert before["capacity"]["request_blocks"] == [32, 32, 257]


def test_plan_is_readable_in_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_bytes(dump_case(split_by_draft()))
    done = kvfuzz("plan", "case.json", folder=tmp_path)
    assert done.returncode == 0
    for words in ("installed+isolate", "73,728", "replicated", "refused at place", "7,281 blocks"):
        assert words in done.stdout


def test_a_run_reports_what_the_patch_fixes_and_replays_it(tmp_path: Path) -> None:
    done = kvfuzz("run", "--cases", "60", "--seed", "1", "--no-corpus", "--json", folder=tmp_path)
    report = document(done)
    assert report["cases"] == 60
    assert report["seed"] == 1
    assert report["contract"] == "isolate"
    assert sum(report["verdicts"].values()) == 60
    assert report["cases_per_second"] > 0
    assert [p["version"] for p in report["planners"]] == ["0.32.0", "0.32.0"]
    fixed = [f for f in report["findings"] if f["verdict"] == "fixed"]
    assert fixed
    for finding in report["findings"]:
        assert finding.keys() >= {
            "id",
            "fingerprint",
            "law",
            "verdict",
            "planner",
            "summary",
            "case",
            "first_difference",
        }
        assert (tmp_path / finding["case"]).is_file()
    witness = next(f for f in fixed if f["law"] == "G6")
    again = kvfuzz("replay", witness["id"], "--json", folder=tmp_path)
    (one,) = document(again)["cases"]
    assert one["result"] in ("FIXED", "FAILED", "KNOWN")
    assert witness["fingerprint"] in {f["fingerprint"] for f in one["findings"]}


def test_a_finding_is_asked_again_of_the_planners_that_showed_it(tmp_path: Path) -> None:
    branch = f"installed+{ROOT / 'fuzz' / 'canaries' / 'lost_layer.py'}"
    bounds = "--cases", "20", "--seed", "1", "--no-corpus", "--no-requests", "--no-canary", "--no-minimise"
    found = document(kvfuzz("run", *bounds, "--patched", branch, "--json", folder=tmp_path))["findings"]
    broken = next(f for f in found if f["verdict"] == "regression")
    again = kvfuzz("replay", broken["id"], folder=tmp_path)
    assert again.returncode == 1
    assert again.stdout.startswith(f"FAILED {broken['id']}\n")
    assert f"asked: unpatched installed, patched {branch}" in again.stdout
    other = kvfuzz("replay", broken["id"], "--patched", "installed", folder=tmp_path)
    assert "asked: unpatched installed, patched installed\n" in other.stdout


def test_a_run_whose_time_is_too_short_for_a_case_does_not_count(tmp_path: Path) -> None:
    done = kvfuzz("run", "--time", "0.0001s", "--seed", "1", "--no-requests", "--no-canary", folder=tmp_path)
    assert done.returncode == 3, done.stdout
    assert "no case was drawn" in done.stdout


def test_a_store_of_ones_own_is_named_in_the_line_that_asks_again(tmp_path: Path) -> None:
    run = ("run", "--cases", "24", "--seed", "1", "--no-corpus", "--no-minimise", "--store", "my store")
    done = kvfuzz(*run, "--report", "markdown=run.md", folder=tmp_path)
    lines = [line.strip() for line in (done.stdout + (tmp_path / "run.md").read_text()).splitlines()]
    asked = {" ".join(line.split()[:2]): line for line in lines if line.startswith("kvfuzz replay ")}
    assert asked
    assert all(line.endswith("--store 'my store'") for line in asked.values())
    words = shlex.split(next(iter(asked.values())))
    assert kvfuzz(*words[1:], folder=tmp_path).returncode in (0, 1)


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    reports = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        done = kvfuzz("run", "--cases", "40", "--seed", "5", "--no-corpus", "--json", folder=tmp_path / name)
        reports.append(document(done))
    first, second = ([(f["id"], f["fingerprint"], f["seen"]) for f in report["findings"]] for report in reports)
    assert first == second
    assert reports[0]["verdicts"] == reports[1]["verdicts"]


def test_a_patch_that_refuses_everything_is_a_regression(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_bytes(dump_case(dense()))
    patched = f"installed+{OVERLAYS / 'loud_refusal.py'}"
    done = kvfuzz("replay", "case.json", "--patched", patched, "--json", folder=tmp_path)
    assert done.returncode == 1
    (one,) = document(done)["cases"]
    assert one["result"] == "FAILED"
    assert ("G7", "regression") in [(f["law"], f["verdict"]) for f in one["findings"]]


def test_what_a_file_says_cannot_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "case.json").write_bytes(dump_case(dense()))
    (tmp_path / "kvfuzz.toml").write_text('[planners."x\\u001b[31m y"]\naddress = "installed"\n')
    done = kvfuzz("plan", "case.json", "--planner", "x", folder=tmp_path)
    assert done.returncode == 2
    assert r"(known: x\x1b[31m y)" in done.stderr
    assert "\x1b" not in done.stderr


def test_everything_printed_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("head\x1b[31m")
    table.add_row("[bold]cell[/]\x1b]0;title\x07")
    for console in (out(), err()):
        console.print("line\x1b[2J\n\u202eline \ud800 \x9b1m", markup=False)
        console.print(table)
    for printed in capsys.readouterr():
        assert "line\\x1b[2J\n\\u202eline \\ud800 \\x9b1m" in printed
        assert "head\\x1b[31m" in printed
        assert "cell\\x1b]0;title\\x07" in printed
        assert printed.replace("\n", "").isprintable()


def test_files_that_are_none_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for args in (("plan", "pipe.json"), ("check", "pipe.json"), ("replay-plan", "pipe.json")):
        done = kvfuzz(*args, folder=tmp_path)
        assert done.returncode == 2
        assert "pipe.json: " in done.stderr
        assert "is no regular file" in done.stderr


def test_an_empty_file_of_plans_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "plans.jsonl").touch()
    done = kvfuzz("replay-plan", "plans.jsonl", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "plans.jsonl: holds no plan; write some with `kvfuzz export-plans`" in done.stderr


def test_a_planner_that_does_not_start_is_an_infrastructure_error(tmp_path: Path) -> None:
    package = tmp_path / "tree" / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('half a checkout')\n")
    patched = f"path:{tmp_path / 'tree'}"
    done = kvfuzz("run", "--cases", "1", "--patched", patched, folder=tmp_path)
    assert done.returncode == 3
    assert "half a checkout" in done.stderr
    examined = kvfuzz("doctor", "--planner", patched, "--planner", "installed", "--json", folder=tmp_path)
    assert examined.returncode == 3
    broken, healthy = document(examined)["planners"]
    assert (broken["ok"], healthy["ok"]) == (False, True)
    assert "half a checkout" in broken["problem"]
    assert broken["remedy"]
    assert healthy["hello"]["version"] == "0.32.0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "missing.json"), "missing.json: cannot be read"),
        (("export", "missing.json", "--as", "poem"), "is not a form"),
        (("run", "--nope"), "the command line cannot be read"),
    ],
    ids=["a file", "a value", "an option"],
)
def test_a_failure_is_one_document_too(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = kvfuzz(*arguments, "--json", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr
    failure = document(done)
    assert failure["exit_code"] == 2
    assert message in failure["error"]
