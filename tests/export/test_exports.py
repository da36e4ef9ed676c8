"""Exported scripts and tests run with vLLM alone: they fail on a faulty tree and pass on a mended one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from fuzz.cli import app
from fuzz.corpus import corpus_folder
from fuzz.export import diagnose, export
from fuzz.export.render import has_script
from fuzz.pair import Pair
from fuzz.planners import isolate
from oracles.case import (
    Case,
    FullSpec,
    Layer,
    MambaSpec,
    MlaSpec,
    Settings,
    SlidingWindowSpec,
    Spec,
    build_case,
    load_case,
)
from tests.export.alone import HOSTILE, PYTEST, alone, copy_of_vllm, exit_codes, started, write_exports

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("exports")]

PLAIN = FullSpec(block_size=16, num_kv_heads=1, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128)
PADDED_WINDOW = SlidingWindowSpec(
    block_size=16, num_kv_heads=1, head_size=64, sliding_window=128, page_size_padded=8192
)
WIDE = FullSpec(block_size=16, num_kv_heads=8, head_size=64)
STATE = MambaSpec(block_size=16, shapes=((4096,),), dtypes=("bfloat16",), mamba_cache_mode="all")
PADDED = FullSpec(block_size=16, num_kv_heads=1, head_size=64, page_size_padded=4096)
MLA = MlaSpec(block_size=64, num_kv_heads=1, head_size=576)
DRAFT = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=2048, replicated=True)
REPLICATED = FullSpec(block_size=16, num_kv_heads=1, head_size=64, replicated=True)
TWO_HEADS = FullSpec(block_size=16, num_kv_heads=2, head_size=64)


def hostile(*specs: Spec, settings: Settings) -> Case:
    rows: list[tuple[Layer, Spec]] = [(Layer(name=HOSTILE[at], spec=0), spec) for at, spec in enumerate(specs)]
    return build_case(rows, settings)


CASES: dict[str, tuple[Case, str]] = {
    "R1": (hostile(STATE, PADDED, settings=Settings(mamba_mode="all")), "R1"),
    "G1": (
        hostile(PADDED_WINDOW, PADDED_WINDOW, WINDOW, PADDED_WINDOW, WINDOW, WIDE, settings=Settings(layout="BLNHC")),
        "G1",
    ),
    "G6": (hostile(MLA, MLA, DRAFT, DRAFT, settings=Settings(dcp=4, layout_origin="forced")), "G6"),
    "M5": (hostile(REPLICATED, TWO_HEADS, settings=Settings(layout="LHBNC", layout_origin="forced")), "M5"),
}
"""A case for each way in which a reproducer tells that the fault stands, and the law that it breaks."""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with started("installed+isolate", "isolate") as made:
        yield made


def fingerprint(pair: Pair, case: Case, law: str) -> str:
    found = [f for f in pair.ask(case).verdict.findings if f.law == law]
    return found[0].fingerprint


@pytest.fixture(scope="module")
def exported(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script and a test of each case."""
    folder = tmp_path_factory.mktemp("exported")
    for name, (case, law) in CASES.items():
        write_exports(folder, name, diagnose(pair, case, fingerprint(pair, case, law)))
    return folder


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed vLLM without the faults."""
    addition = (Path(__file__).parent / "mended.txt").read_text()
    return copy_of_vllm(tmp_path_factory.mktemp("tree"), f"ISOLATE = {isolate.__file__!r}\n{addition}")


def test_scripts_fail_while_the_fault_stands(exported: Path) -> None:
    codes, said = exit_codes(exported, CASES, None)
    assert codes == dict.fromkeys(CASES, 1)
    assert "AssertionError" in said  # R1 shows the planner's own error


def test_scripts_pass_on_a_mended_tree(exported: Path, mended: Path) -> None:
    codes, said = exit_codes(exported, CASES, mended)
    assert codes == dict.fromkeys(CASES, 0), said


def test_tests_fail_while_the_fault_stands(exported: Path) -> None:
    done = alone(PYTEST, exported, None)
    assert f"{len(CASES)} failed" in done.stdout, done.stdout + done.stderr


def test_tests_pass_on_a_mended_tree(exported: Path, mended: Path) -> None:
    done = alone(PYTEST, exported, mended)
    assert f"{len(CASES)} passed" in done.stdout, done.stdout + done.stderr


WITHOUT_WINDOWS = """
import runpy
import vllm.v1.core.single_type_kv_cache_manager  # what imports the name must have done so before it goes
import vllm.v1.kv_cache_interface as interface
del interface.SlidingWindowSpec
runpy.run_path("G1.py", run_name="__main__")
"""


def test_a_tree_that_cannot_say_it_is_told_apart(exported: Path) -> None:
    done = alone(WITHOUT_WINDOWS, exported, None)
    assert done.returncode == 2
    assert "unsupported: no SlidingWindowSpec" in done.stdout


def test_issue_text_keeps_hostile_names_in_their_cells(pair: Pair) -> None:
    case, law = CASES["G1"]
    text = export(diagnose(pair, case, fingerprint(pair, case, law)), "issue")
    head = text[: text.index("<details>")]
    assert "<b>" not in head
    table = head[head.index("**Layers**") : head.index("**Expected**")]
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert [row.replace("\\|", "").count("|") for row in rows] == [7] * 5
    assert text.count("\n```") == 2


WINDOW_BILL = corpus_folder() / "requests" / "window-bill-forgets-the-lookahead.json"


def test_a_finding_of_served_requests_is_told_with_its_script() -> None:
    told = CliRunner().invoke(app, ["export", str(WINDOW_BILL), "--fingerprint", "ed51cfe8", "--as", "issue"])
    assert told.exit_code == 0
    assert "class Serving:" in told.output
    assert "CHUNKS = [2048] * 3 + [2045] + [1, 1]" in told.output


def test_a_finding_without_a_script_is_told_with_its_case(pair: Pair) -> None:
    case, law = CASES["M5"]
    shown = diagnose(pair, case, fingerprint(pair, case, law))
    told = structs.replace(shown, finding=structs.replace(shown.finding, law="Q5"), no_script="nobody shows it")
    assert not has_script(told)
    issue = export(told, "issue")
    assert "kvfuzz replay FILE" in issue
    text = issue.partition("```json\n")[2].partition("\n```")[0]
    assert load_case(text.encode()) == case


def test_a_script_names_no_path_of_this_machine(exported: Path) -> None:
    for path in exported.glob("*.py"):
        assert str(Path.home()) not in path.read_text()
        assert "kvfuzz" not in path.read_text().replace('model_type="kvfuzz"', "")
