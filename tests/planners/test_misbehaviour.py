"""Whatever a planner does becomes the outcome of the case that did it, and the next case is served."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Pair
from fuzz.planners import process
from fuzz.planners.process import Planner, PlannerError, Question
from fuzz.planners.protocol import HEADER_BYTES, Answer, body_length, pack, words_of
from fuzz.planners.trees import Config, Launch, open_launch
from oracles.case import FullSpec, Layer, Settings, Spec, Worker, build_case
from oracles.law import Evidence
from oracles.laws import broken_laws
from oracles.plan import Died, Outcome, Plan, Planned, Refused, TimedOut
from tests.models import dense, split_by_draft

OVERLAYS = Path(__file__).parent / "overlays"
DOOMED = dense("doomed")
GOOD = dense("good")


def ask(overlay: str, *, case_seconds: float = 20.0, memory: int = 2**30) -> tuple[Outcome, Outcome, Outcome]:
    """Outcomes of a good case, the doomed one, and a good one after it, put as one batch."""
    launch = open_launch(f"installed+{OVERLAYS / overlay}", Config())
    with Planner(launch, case_seconds=case_seconds, memory=memory) as planner:
        first, doomed, after = planner.ask([Question(GOOD), Question(DOOMED), Question(GOOD)])
    return first.outcome, doomed.outcome, after.outcome


def test_a_crash_is_the_outcome_of_the_case_that_crashed() -> None:
    before, doomed, after = ask("crash.py")
    assert isinstance(before, Planned)
    assert isinstance(doomed, Died)
    assert doomed.cause == "SIGSEGV"
    assert "crash.py" in doomed.stderr_tail  # the stack names the overlay
    assert isinstance(after, Planned)


def test_a_hang_ends_at_the_deadline() -> None:
    before, doomed, after = ask("hang.py", case_seconds=2.0)
    assert isinstance(before, Planned)
    assert doomed == TimedOut(seconds=2.0, stderr_tail=doomed.stderr_tail if isinstance(doomed, TimedOut) else "")
    assert isinstance(after, Planned)


def test_memory_is_limited() -> None:
    before, doomed, after = ask("hungry.py", memory=512 * 2**20)
    assert isinstance(before, Planned)
    assert isinstance(doomed, Died)
    assert doomed.cause == "out of memory"
    assert isinstance(after, Planned)


def test_printing_disturbs_nothing() -> None:
    before, printed, after = ask("chatty.py")
    assert isinstance(before, Planned)
    assert isinstance(printed, Planned)
    assert isinstance(after, Planned)


def test_a_plan_that_is_none_is_a_refusal_that_no_law_allows() -> None:
    before, doomed, after = ask("rubbish.py")
    assert isinstance(before, Planned)
    assert isinstance(doomed, Refused)
    assert (doomed.first.stage, doomed.first.type) == ("group", "InvalidPlan")
    breaches = broken_laws(Evidence(case=DOOMED, contract="native", outcome=doomed))
    assert [breach.law for breach in breaches] == ["R1"]
    assert isinstance(after, Planned)


def test_rubbish_in_the_channel_is_a_bad_reply() -> None:
    before, doomed, after = ask("scribbler.py")
    assert isinstance(before, Planned)
    assert isinstance(doomed, Died)
    assert doomed.cause in ("bad reply", "exit 1")
    assert isinstance(after, Planned)


def test_altered_inputs_are_reported() -> None:
    launch = open_launch(f"installed+{OVERLAYS / 'meddler.py'}", Config())
    with Planner(launch) as planner:
        (answer,) = planner.ask([Question(split_by_draft())])
    assert answer.changed == ("specs.num_kv_heads",)


def test_a_typed_refusal_keeps_its_message_and_breaks_no_law() -> None:
    launch = open_launch(f"installed+{OVERLAYS / 'loud_refusal.py'}", Config())
    with Planner(launch) as planner:
        (answer,) = planner.ask([Question(GOOD)])
    assert isinstance(answer.outcome, Refused)
    assert answer.outcome.first.message == "this planner refuses everything"
    assert broken_laws(Evidence(case=GOOD, contract="native", outcome=answer.outcome)) == []


def test_a_tree_that_cannot_be_imported_is_an_infrastructure_error(tmp_path: Path) -> None:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('half a checkout')\n")
    with (
        Planner(open_launch(f"path:{tmp_path}", Config())) as planner,
        pytest.raises(PlannerError, match="half a checkout"),
    ):
        planner.hello()


def test_a_crash_in_a_second_look_is_told() -> None:
    pair = Pair(
        open_launch("installed", Config()), open_launch(f"installed+{OVERLAYS / 'crash_in_views.py'}", Config()),
        "native", case_seconds=20.0, memory=2**30,
    )  # fmt: skip
    # 600 blocks, of which a request needs 512: a claim of whole requests would be a fault of vLLM's own.
    case = structs.replace(GOOD, settings=Settings(workers=(Worker(memory=600 * 2**17),)))
    try:
        pair.start()
        verdict = FocusedPair(pair, "P7").ask(case).verdict
    finally:
        pair.close()
    assert [(f.law, f.verdict, f.error) for f in verdict.findings] == [("alive", "regression", "SIGSEGV")]


def test_a_planner_killed_while_it_starts_is_started_again() -> None:
    with Planner(open_launch("installed", Config())) as planner:
        starting = planner.start()
        while planner._worker is None:
            time.sleep(0.01)
        os.kill(planner._worker._process.pid, signal.SIGKILL)
        assert starting.result().version
        assert planner.killed == 1
        (answer,) = planner.ask([Question(GOOD)])
    assert isinstance(answer.outcome, Planned)


def planner_of(folder: Path, apply: str) -> Planner:
    """A planner with an overlay that does ``apply``."""
    overlay = folder / "overlay.py"
    overlay.write_text(f"import os, sys\n\n\ndef apply(planner):\n    {apply}\n")
    return Planner(open_launch(f"installed+{overlay}", Config()))


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        ("sys.exit(0)", r"cannot be used: it asked to exit while starting \(SystemExit: 0\)"),
        ("os._exit(1)", r"the worker died while starting \(exit 1\)"),
    ],
)
def test_a_planner_that_ends_itself_while_starting_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apply: str, words: str
) -> None:
    started = []

    class Counted(process.Worker):
        def __init__(self, launch: Launch, *, hash_seed: int, memory: int) -> None:
            started.append(launch)
            super().__init__(launch, hash_seed=hash_seed, memory=memory)

    monkeypatch.setattr(process, "Worker", Counted)
    with planner_of(tmp_path, apply) as planner:
        for told in (planner.start().result, planner.hello, lambda: planner.ask([Question(GOOD)])):
            with pytest.raises(PlannerError, match=words):
                told()
    assert len(started) == 1


def test_what_a_refusal_says_is_cut_and_can_be_sent(tmp_path: Path) -> None:
    refuse = "def refuse(*args):\n        raise ValueError('a\\ud800' + 'b' * 5_000_000)\n    "
    with_it = "planner.get_kv_cache_groups = refuse"
    with planner_of(tmp_path, refuse + with_it) as planner:
        (answer,) = planner.ask([Question(GOOD)])
    assert isinstance(answer.outcome, Refused)
    assert answer.outcome.first.type == "ValueError"
    assert answer.outcome.first.message.startswith("a\\ud800bbb")
    assert len(answer.outcome.first.message) < 3000


def test_an_exception_without_words_is_told_all_the_same() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("no words")

    assert words_of(Mute(), 100) == "(its text cannot be had: KeyError)"
    assert words_of(ValueError("x" * 5_000_000), 100) == "x" * 100


def test_text_that_cannot_be_encoded_is_escaped_wherever_it_stands() -> None:
    plan = Plan(specs=(), groups=None, owner="a\udfffb")
    sent = pack(Answer(number=3, outcome=Planned(plan=plan), changed=("\ud800",)))
    told = msgspec.msgpack.decode(sent[HEADER_BYTES:], type=Answer)
    assert body_length(sent[:HEADER_BYTES]) == len(sent) - HEADER_BYTES
    assert isinstance(told.outcome, Planned)
    assert (told.number, told.outcome.plan.owner, told.changed) == (3, r"a\udfffb", (r"\ud800",))


def test_a_plan_with_a_number_beyond_64_bits_is_one_that_cannot_be_expressed() -> None:
    blocks = (1025, 6649, 923, 415, 4031, 271, 263, 17, 1013, 1019)
    layers: list[tuple[Layer, Spec]] = [
        (Layer(name=f"t.{at}", spec=0), FullSpec(block_size=block, num_kv_heads=1, head_size=64))
        for at, block in enumerate(blocks)
    ]
    case = build_case(layers, Settings(layout="BLHNC", dcp=8, tp=8))
    with Planner(open_launch("installed", Config())) as planner:
        judged = Pair.of(planner, planner, "native").ask(case)
    assert judged.verdict.name == "inconclusive"
    assert judged.verdict.reason.startswith("unsupported: plan")
