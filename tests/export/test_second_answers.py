"""Exported scripts and tests of what a second answer or vLLM's views show, with vLLM alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.export import Diagnosis, NothingFound, diagnose, export, second
from fuzz.export.second import How, Second
from fuzz.export.second_values import (
    ENDING,
    IS_PLACED,
    LENGTH_AND_TOKENS,
    MORE_READERS,
    SHAPES,
    unsplit_layers,
    unsplit_readers,
)
from fuzz.export.values import READERS, Reader
from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Pair
from fuzz.planners.process import Planner, Question
from oracles.case import Case
from oracles.law import Breach
from oracles.plan import Planned
from tests.export.alone import PYTEST, alone, copy_of_vllm, exit_codes, started, write_exports
from tests.export.second_cases import CASES, READ, TWIN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("second answers")]

HERE = Path(__file__).parent
OVERLAY = HERE.parent / "planners" / "overlays" / "second_answers.py"
HIDDEN = "regress/hidden-state-block-holds-no-state.json"
NAMES = (*CASES, "twin", "hidden")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with started(f"installed+{OVERLAY}", "native") as made:
        yield made


def diagnosed(pair: Pair, case: Case, law: str) -> Diagnosis:
    """The patched planner's finding of a law."""
    findings = FocusedPair(pair, None).ask(case).verdict.findings
    return diagnose(pair, case, next(one.fingerprint for one in findings if one.law == law))


@pytest.fixture(scope="module")
def diagnoses(pair: Pair) -> dict[str, Diagnosis]:
    found = {name: diagnosed(pair, case, law) for name, (case, law) in CASES.items()}
    # A run compares its lanes; one process with one hash seed shows nothing.
    between_lanes = Breach(law="G9", path="groups[].layers", detail="").fingerprint("patched")
    assert between_lanes not in {one.fingerprint for one in FocusedPair(pair, None).ask(TWIN).verdict.findings}
    found["twin"] = diagnose(pair, TWIN, between_lanes)
    found["hidden"] = diagnosed(pair, read_case(corpus_folder() / HIDDEN), "P7")
    return found


@pytest.fixture(scope="module")
def exported(diagnoses: dict[str, Diagnosis], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script and a test of each case."""
    folder = tmp_path_factory.mktemp("exported")
    for name, diagnosis in diagnoses.items():
        write_exports(folder, name, diagnosis)
    return folder


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed vLLM with the overlay's faults."""
    addition = f"{OVERLAY.read_text()}\n\nimport sys\n\napply(sys.modules[__name__])\n"
    return copy_of_vllm(tmp_path_factory.mktemp("tree"), addition)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the installed vLLM without its one fault in these cases."""
    return copy_of_vllm(tmp_path_factory.mktemp("tree"), (HERE / "mended_views.txt").read_text())


def test_scripts_fail_while_the_fault_stands(exported: Path, faulty: Path) -> None:
    codes, said = exit_codes(exported, NAMES, faulty)
    assert codes == dict.fromkeys(NAMES, 1), said


def test_scripts_pass_on_a_good_tree(exported: Path, good: Path) -> None:
    codes, said = exit_codes(exported, NAMES, good)
    assert codes == dict.fromkeys(NAMES, 0), said


def test_tests_fail_while_the_fault_stands(exported: Path, faulty: Path) -> None:
    done = alone(PYTEST, exported, faulty)
    assert f"{len(NAMES)} failed" in done.stdout, done.stdout + done.stderr


def test_tests_pass_on_a_good_tree(exported: Path, good: Path) -> None:
    done = alone(PYTEST, exported, good)
    assert f"{len(NAMES)} passed" in done.stdout, done.stdout + done.stderr


def test_no_process_is_started_for_a_finding_that_is_none_between_processes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starting(_planner: Planner) -> Iterator[Planner]:
        raise AssertionError("started")

    monkeypatch.setattr(second, "_twins", starting)
    with pytest.raises(NothingFound):
        diagnose(pair, TWIN, Breach(law="G9", path="none", detail="").fingerprint("patched"))
    with pytest.raises(AssertionError, match="started"):
        diagnose(pair, TWIN, Breach(law="G9", path="outcome", detail="").fingerprint("patched"))


WITHOUT_VIEWS = """
import runpy
import vllm.v1.kv_cache_interface as interface
del interface.create_kv_cache_views
try:
    runpy.run_path("hidden.py", run_name="__main__")
except SystemExit as end:
    print("code", end.code)
"""


def test_a_tree_that_makes_no_views_is_told_apart(exported: Path) -> None:
    one_test = PYTEST.replace('"."]', '"test_hidden.py"]')
    done = alone(WITHOUT_VIEWS + one_test, exported, None)
    assert "unsupported: no create_kv_cache_views\ncode 2\n" in done.stdout, done.stderr
    assert "1 skipped" in done.stdout, done.stdout


CANNOT_PLAN = """
import runpy
import vllm.v1.core.kv_cache_utils as planner
def planned(*_args):
    raise AttributeError("no such thing")
planner.get_kv_cache_groups = planner.get_kv_cache_configs = planned
for name in NAMES:
    try:
        runpy.run_path(f"{name}.py", run_name="__main__")
    except SystemExit as end:
        print("code", name, end.code)
"""


def test_a_planner_that_fails_both_times_does_not_count_as_good(exported: Path) -> None:
    compared = [name for name in NAMES if name != "twin"]
    done = alone(f"NAMES = {compared}{CANNOT_PLAN}", exported, None)
    codes = [line for line in done.stdout.splitlines() if line.startswith("code ")]
    assert codes == [f"code {name} 2" for name in compared], done.stdout + done.stderr


def test_kvfuzz_is_kept_from_a_scripts_own_processes(tmp_path: Path) -> None:
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'import fuzz']).returncode)"
    done = alone(code, tmp_path, None)
    assert (done.returncode, "fuzz is blocked" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("permuted", "The same in each order of equal layers: \\[('FullAttentionSpec', 2, 32, 16384)\\]"),
        ("table_by_ranks", "block table, by the model length. The same with twice the DCP ranks: {('it"),
        ("fewer_in_more", "With twice the memory no less than (1013, "),
        ("hidden", "**Expected**: a view of t.1 that holds something, on worker 0\n"),
    ],
)
def test_an_issue_says_what_was_due_and_carries_the_script(
    diagnoses: dict[str, Diagnosis], exported: Path, name: str, due: str
) -> None:
    text = export(diagnoses[name], "issue")
    assert due in text
    assert "Script (needs vLLM alone" in text
    code = text.partition("python\n")[2].rpartition("\n\n</details>")[0].rpartition("\n")[0]
    assert code == (exported / f"{name}.py").read_text().rstrip()


READ_ALL = """
import runpy, sys
for name in NAMES:
    made = runpy.run_path(f"{name}.py")
    dcp = (made["DCP"],) if "DCP" in made else ()
    memory = (made["MEMORY"],) if "MORE_MEMORY" in made else ()
    print("value", ascii(made["answer"](made["LAYERS"], *memory, *dcp)))
"""


def test_scripts_read_what_kvfuzz_reads(pair: Pair, diagnoses: dict[str, Diagnosis], tmp_path: Path) -> None:
    some = diagnoses["again"]
    wanted: dict[str, object] = {}
    for case in READ:
        (answer,) = pair.unpatched.ask([Question(case)])
        assert isinstance(answer.outcome, Planned)
        plan = answer.outcome.plan
        unsplit = [
            reader
            for path in ("groups[].spec", "groups[].span_tokens", "sizes.widths")
            for reader in unsplit_readers(case, path)
        ]
        pairs: list[tuple[How, Reader]] = [
            *(("again", reader) for reader in (*READERS, *MORE_READERS, ENDING)),
            ("permuted", SHAPES), ("more_memory", LENGTH_AND_TOKENS), ("more_memory", IS_PLACED),
            *(("unsplit", reader) for reader in unsplit),
        ]  # fmt: skip
        for how, reader in pairs:
            if reader.name in ("specs", "unsplit.spec"):
                continue  # vLLM's own words
            asked = Second(how=how, due="", case=case, reader=reader, unsplit=unsplit_layers(case))
            name = f"read{len(wanted)}"
            (tmp_path / f"{name}.py").write_text(export(structs.replace(some, case=case, second=asked), "script"))
            wanted[f"{name} {reader.name}"] = "planned" if reader is ENDING else reader.read(plan)
    done = alone(f"NAMES = {[name.partition(' ')[0] for name in wanted]}{READ_ALL}", tmp_path, None)
    lines = [line.removeprefix("value ") for line in done.stdout.splitlines() if line.startswith("value ")]
    got = dict(zip(wanted, map(ast.literal_eval, lines), strict=True))
    assert got == wanted, done.stderr
