"""The script for a bare machine, on the CPU, and the commands around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.replay import device as script
from fuzz.replay.memory.bench import big_pools
from fuzz.replay.memory.check import pools_with_arithmetic
from fuzz.replay.memory.pools import write_pools
from fuzz.replay.memory.select import interesting
from tests.oracles.models import FULL, MLA, model, settings
from tests.replay import bodies


def test_sound_plans_are_clean(tmp_path: Path) -> None:
    bodies.sound_plans_are_clean("cpu", tmp_path)


def test_faults_are_found(tmp_path: Path) -> None:
    bodies.faults_are_found("cpu", tmp_path)


def test_pools_beyond_4_gib_are_painted_sparsely(tmp_path: Path) -> None:
    bodies.pools_beyond_4_gib_are_painted_sparsely("cpu", tmp_path)


def test_a_pool_that_ends_its_process_does_not_end_the_others(tmp_path: Path) -> None:
    bodies.one_pool_does_not_end_the_others("cpu", tmp_path)


def test_a_plan_on_which_the_arithmetic_differs_stops_the_run(tmp_path: Path) -> None:
    (wrong,) = bodies.moved(*bodies.sound("BLNHC"), 1)
    lines = [structs.replace(wrong, arithmetic=()), wrong]
    results = bodies.replayed(bodies.decoded(lines, tmp_path), "cpu")
    assert [one["result"] for one in results] == ["disagrees"]
    assert results[0]["reason"] == "arithmetic differs on ['P2', 'P4']"


def test_pools_over_the_cap_and_out_of_time_are_skipped_and_counted(tmp_path: Path) -> None:
    pools = bodies.decoded(pools_with_arithmetic(*bodies.sound("BLNHC"), ""), tmp_path)
    (result, told) = script.replay(pools, "cpu", 0.001, 60.0)
    assert result["result"] == "skipped"
    assert "1,073,741 are to be used" in result["reason"]
    assert told["summary"]["skipped"] == 1
    (late, _) = script.replay(pools, "cpu", 8.0, 0.0)
    assert (late["result"], late["reason"]) == ("skipped", "out of time")


def test_the_file_runs_alone(tmp_path: Path) -> None:
    """Copied away from kvfuzz, with none of it importable."""
    (tmp_path / "device.py").write_bytes(Path(script.__file__).read_bytes())
    write_pools(tmp_path / "plans.jsonl", pools_with_arithmetic(*bodies.sound("BLNHC"), ""))
    done = subprocess.run(
        [sys.executable, "-I", str(tmp_path / "device.py"), "plans.jsonl"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["result"] == "clean"
    assert last["summary"]["clean"] == 1
    assert not {"fuzz", "oracles", "msgspec", "numpy"} & set(_imports(tmp_path / "device.py"))


def _imports(path: Path) -> list[str]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return [words[1].partition(".")[0] for words in lines if words[:1] in (["import"], ["from"])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format: 2 is not a whole number from 1 to 1"),
        ({"pool_bytes": 1.5}, "pool_bytes: 1.5 is not a whole number"),
        ({"num_blocks": True}, "num_blocks: True is not a whole number"),
        ({"here": "model"}, "here: is not a list"),
        ({"id": "a\nb"}, "id: is not a printable string"),
        ({"pages": [{"layer": "a"}]}, "page: is not an object with exactly the fields layer, group"),
        ({"surplus": 1}, "pool: is not an object with exactly the fields"),
    ],
)
def test_a_line_that_is_no_pool_is_refused_by_field(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "plans.jsonl"
    write_pools(path, pools_with_arithmetic(*bodies.sound("BLNHC"), ""))
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(script.FileError, match=r"line 1: ") as caught:
        script.read_pools(path)
    assert message in str(caught.value)
    assert "kvfuzz export-plans" in str(caught.value)


def test_a_file_that_cannot_be_used_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "plans.jsonl").write_text("[1]\n")
    assert script.main([str(tmp_path / "plans.jsonl")]) == 2
    assert script.main([str(tmp_path / "absent.jsonl")]) == 2


def test_no_cuda_device_is_skipped_and_never_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write_pools(tmp_path / "plans.jsonl", pools_with_arithmetic(*bodies.sound("BLNHC"), ""))
    command = [sys.executable, "-m", "fuzz.replay.device", str(tmp_path / "plans.jsonl"), "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == "skipped: no CUDA device (1 pools)\n"
    last = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert (last["skipped"], last.get("clean")) == (1, None)


def test_five_pools_of_6_gib_take_little_time_and_memory() -> None:
    seconds, peak, clean = big_pools()
    assert clean == 5
    assert seconds < 10
    assert peak < 600 * 10**6


def test_the_interesting_cases_are_the_smallest_of_their_feature_tuple() -> None:
    two, three = model((FULL, 2)), model((FULL, 3))
    other = model((MLA, 1), (FULL, 1), under=settings(dcp=4))
    assert interesting([three, other, two]) == [two, other]


@pytest.mark.slow
def test_plans_are_exported_and_replayed_by_the_commands(tmp_path: Path) -> None:
    path = str(tmp_path / "plans.jsonl")
    made = CliRunner().invoke(
        app, ["export-plans", "-o", path, "--no-corpus", "--cases", "60", "--at-most", "6", "--json"]
    )
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["plans"] == 6
    done = CliRunner().invoke(app, ["replay-plan", path, "--cap-gib", "40", "--json"])
    told = json.loads(done.stdout)
    assert told["summary"]["pools"] == len(told["pools"]) >= 6
    assert {one["result"] for one in told["pools"]} <= {"clean", "broken", "skipped"}
    assert done.exit_code == ("broken" in told["summary"])
