"""Scripts that serve requests: each check's fault is shown by vLLM alone, and is gone where vLLM has not got it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from fuzz.export.diagnosis import Diagnosis
from fuzz.export.serving import NoTrace, served_again
from fuzz.pair import describe_planner
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.replay.requests import question, workload_for
from oracles.case import Case, case_id
from oracles.compare import Finding
from tests.export.alone import HOSTILE, codes_told, write_exports
from tests.replay.request_cases import CLEAN, ODD_CHUNK, SHIFTED_DRAFT, SINK, SMALLER_BLOCK

OVERLAYS = Path(__file__).parents[1] / "replay" / "overlays"
SEEDS = range(6)

PLANTED = {
    "raises_midway": ("full", {"Q1 serve.allocate"}),
    "raises_in_chunks": ("aligned states", {"Q1 serve.chunk"}),
    "raises_at_full_length": ("full", {"Q1 serve.allocate"}),
    "gives_null_block": ("full", {"Q2 ids.null"}),
    "leaks_block": ("full", {"Q3 conservation.leak"}),
    "lends_held_block": ("full", {"Q4 owner.place"}),
    "shares_across_groups": ("full and window", {"Q4 owner.groups"}),
    "frees_too_early": ("window", {"Q5 backed.window"}),
    "overwrites": ("full", {"Q6 content.full"}),
    "hits_wrong_prefix": ("full", {"Q7 hit.full"}),
    "hits_off_boundary": ("full", {"Q7 hit.aligned"}),
    "refusal_keeps_block": ("full", {"Q8 refused.counts", "Q8 refused.cache"}),
    "leaks_last_block": ("full", {"Q9 end.free"}),
    "needs_more": ("full", {"Q10 capacity.smallest.admission"}),
    "overclaims": ("full", {"Q11 capacity.concurrency.admission"}),
}
"""Overlays that break the cache manager, the case that shows it, and what every check makes of it."""

RELEASED = {"sink": SINK, "odd_chunk": ODD_CHUNK, "smaller_block": SMALLER_BLOCK, "shifted_draft": SHIFTED_DRAFT}
"""Faults of the installed vLLM."""


def with_hostile_names(case: Case) -> Case:
    layers = tuple(structs.replace(layer, name=HOSTILE[at]) for at, layer in enumerate(case.layers))
    return structs.replace(case, layers=layers)


def shown(planner: Planner, plain: Case) -> tuple[Diagnosis, set[str]]:
    """A diagnosis of the first thing broken by any workload under hostile names, with all that this one breaks."""
    case = with_hostile_names(plain)
    for seed in SEEDS:
        workload = workload_for(plain, seed)
        answer = planner.ask([Question(case, depth="serve", workload=workload)])[0]
        if answer.served is not None and answer.served.violations:
            first = answer.served.violations[0]
            finding = Finding(
                law=first.check, verdict="regression", planner="patched", fingerprint="", summary=first.message,
                first_difference=first.path, error=first.error, frame=first.frame,
            )  # fmt: skip
            info = describe_planner("patched", planner)
            diagnosis = Diagnosis(
                case=case, finding=finding, contract="native", obtained=answer.outcome, counterpart=answer.outcome,
                expected=None, expected_by="", planner=info, other=info,
                planner_module=planner.hello().planner_module, served=served_again(planner, case, finding, workload),
            )  # fmt: skip
            return diagnosis, {f"{one.check} {one.path}" for one in answer.served.violations}
    raise AssertionError(f"{case_id(case)} is served without a fault by {planner.address}")


RUN = """
import json, os, runpy, sys
for name in ("torchvision", "torchaudio", "torchcodec"):
    sys.modules.setdefault(name, None)
import pytest
import vllm.v1.core.kv_cache_utils as planner
import vllm.v1.core.kv_cache_manager

def forked(run):
    child = os.fork()
    if not child:
        try:
            os._exit(run())
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code)
        except BaseException:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def exit_codes(name, overlay):
    def apply():
        if overlay:
            runpy.run_path(overlay)["apply"](planner)
    def script():
        apply()
        runpy.run_path(f"{name}.py", run_name="__main__")
    def test():
        apply()
        return pytest.main(["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", f"test_{name}.py"])
    return [forked(script), forked(test)]

print("\\ncodes", json.dumps({f"{name} {kind}": exit_codes(name, overlay) for name, kind, overlay in ASKED}))
"""
"""Each script and test in a fork of its own, because importing vLLM takes seconds."""


def exit_codes(folder: Path, asked: list[tuple[str, str, str]]) -> dict[str, list[int]]:
    """Exit status of each script and test (name, what kind of tree, overlay) in processes without kvfuzz."""
    codes: dict[str, list[int]] = codes_told(f"ASKED = {asked!r}\n{RUN}", folder, None)[0]
    return codes


OLDER = """
from vllm.v1.core.kv_cache_manager import KVCacheManager

def apply(planner):
    del KVCacheManager.new_step_starts
"""
"""A cache manager as before 0.29."""

BROKEN = """
from vllm.v1.core.kv_cache_manager import KVCacheManager

def apply(planner):
    def allocate(self, *args, **kwargs):
        raise LookupError("another fault")
    KVCacheManager.allocate_slots = allocate
"""
"""A cache manager with which no step can be made."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_check_catches_its_fault_and_its_script_shows_it(tmp_path: Path) -> None:
    found = {}
    for name, (case, _) in PLANTED.items():
        with Planner(open_launch(f"installed+{OVERLAYS / name}.py", Config())) as planner:
            diagnosis, found[name] = shown(planner, CLEAN[case])
            write_exports(tmp_path, name, diagnosis)
    assert found == {name: expected for name, (_, expected) in PLANTED.items()}
    faulty = [(name, "faulty", f"{OVERLAYS / name}.py") for name in PLANTED]
    good = [(name, "good", "") for name in PLANTED]
    (tmp_path / "older.txt").write_text(OLDER)
    (tmp_path / "broken.txt").write_text(BROKEN)
    # A skipped test ends with 0 as well, so the script's own status tells.
    other = [(name, kind, f"{kind}.txt") for kind in ("older", "broken") for name in PLANTED]
    expected = {f"{name} faulty": [1, 1] for name in PLANTED} | {f"{name} good": [0, 0] for name in PLANTED}
    expected |= {f"{name} {kind}": [2, 0] for name, kind, _ in other}
    assert exit_codes(tmp_path, faulty + good + other) == expected


@pytest.mark.slow
def test_scripts_show_the_faults_of_the_release(tmp_path: Path, unpatched: Planner) -> None:
    for name, case in RELEASED.items():
        write_exports(tmp_path, name, shown(unpatched, case)[0])
    asked = [(name, "faulty", "") for name in RELEASED]
    assert exit_codes(tmp_path, asked) == {f"{name} faulty": [1, 1] for name in RELEASED}


def test_what_is_not_shown_again_has_no_script(unpatched: Planner) -> None:
    finding = Finding(
        law="Q5", verdict="regression", planner="patched", fingerprint="", summary="", first_difference="backed.full",
    )  # fmt: skip
    with pytest.raises(NoTrace, match="does not show it"):
        served_again(unpatched, CLEAN["window"], finding)


def test_a_trace_is_told_only_when_it_is_asked_for(unpatched: Planner) -> None:
    asked = question(CLEAN["full"])
    assert asked.workload is not None
    plain, traced = unpatched.ask([
        asked, Question(CLEAN["full"], depth="serve", workload=structs.replace(asked.workload, traced=True)),
    ])  # fmt: skip
    assert plain.served is not None
    assert traced.served is not None
    assert traced.served.trace is not None
    assert plain.served.trace is None
    assert structs.replace(traced.served, trace=None, seconds=0.0) == structs.replace(plain.served, seconds=0.0)
    assert len(traced.served.trace.events) > 100
