"""Asks planners to serve a workload, and reads their answers."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Answer
from fuzz.planners.workload import Served, Workload
from fuzz.replay.requests.checks import breaches_of, severity_of, untold
from fuzz.replay.requests.drawing import TURNS, draw_workload
from oracles.case import Case, FullSpec, Layer, Settings, SlidingWindowSpec, Spec, Worker, build_case, case_id
from oracles.law import Breach, Contract, Evidence
from oracles.laws import broken_laws
from oracles.plan import Died, Planned, Refused, TimedOut, Unsupported

Result = Literal["CLEAN", "QUALITY", "KNOWN", "UNSOUND", "BROKEN", "SKIPPED", "ERROR"]

BATCH = 8
"""Questions in flight: a workload takes a tenth of a second."""


class RequestReplay(Struct, frozen=True, kw_only=True):
    """One case served by one planner. ``fingerprints`` are those of the breaches, in order, on the patched side.

    QUALITY: only what costs speed was broken. KNOWN: broken, and every fault is listed in known.toml (never said by
    ``judge``, which reads no such list). UNSOUND: broken, and so is the plan that was served, by the laws that the
    reason names: what serving shows may only tell that again. SKIPPED: not planned, or not served for the reason
    given. ERROR: the worker died or gave no answer.
    """

    id: str
    name: str
    planner: str
    result: Result
    reason: str = ""
    served: Served | None = None
    breaches: tuple[Breach, ...] = ()
    fingerprints: tuple[str, ...] = ()


def workload_for(case: Case, seed: int = 0, turns: int = TURNS) -> Workload:
    """The workload of a case: a function of the case's id and ``seed``."""
    return draw_workload(case, random.Random(f"{case_id(case)} {seed}"), turns)


def question(case: Case, seed: int = 0, turns: int = TURNS) -> Question:
    """The question by which a planner is asked to plan ``case`` and to serve its workload."""
    return Question(case, depth="serve", workload=workload_for(case, seed, turns))


def judge(name: str, case: Case, planner: str, answer: Answer, contract: Contract = "native") -> RequestReplay:
    """What an answer to ``question`` says, of a planner that keeps ``contract``."""
    outcome, served = answer.outcome, answer.served
    result: Result = "CLEAN"
    reason = ""
    breaches: tuple[Breach, ...] = ()
    match outcome:
        case Died():
            result, reason = "ERROR", f"the worker died ({outcome.cause}): {outcome.stderr_tail[-400:]}"
        case TimedOut():
            result, reason = "ERROR", f"no answer within {outcome.seconds:g} s"
        case Unsupported():
            result, reason = "SKIPPED", f"not expressible: {outcome.field}"
        case Refused():
            result, reason = "SKIPPED", f"refused: {outcome.first.stage}"
        case Planned():
            if served is None:
                result, reason = "SKIPPED", "not served"
            else:
                breaches = breaches_of(case, served)
                reason = served.skipped
                skipped = not served.turns and bool(reason)
                result = "QUALITY" if breaches else "SKIPPED" if skipped else "CLEAN"
                if faults := [breach for breach in breaches if severity_of(breach) == "fault"]:
                    laws = broken_laws(Evidence(case=case, contract=contract, outcome=outcome))
                    result = "BROKEN" if untold(laws, faults) else "UNSOUND"
                    reason = f"the plan breaks {laws[0].law} {laws[0].path}" if laws else reason
    return RequestReplay(
        id=case_id(case), name=name, planner=planner, result=result, reason=reason, served=served,
        breaches=breaches, fingerprints=tuple(breach.fingerprint("patched") for breach in breaches),
    )  # fmt: skip


def replay_requests(
    planners: Sequence[Planner], cases: Iterable[tuple[str, Case]], seed: int = 0, turns: int = TURNS
) -> Iterator[RequestReplay]:
    """Serves every case with every planner, batch by batch. Raises PlannerError."""
    for batch in _batches(cases):
        asked = [question(one, seed, turns) for _, one in batch]
        waiting = [(planner, planner.submit(asked)) for planner in planners]
        for planner, answers in waiting:
            for (name, one), answer in zip(batch, answers.result(), strict=True):
                yield judge(name, one, planner.address, answer, planner.launch.contract or "native")


def _batches(cases: Iterable[tuple[str, Case]]) -> Iterator[list[tuple[str, Case]]]:
    batch: list[tuple[str, Case]] = []
    for one in cases:
        batch.append(one)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def workload_seconds(planner: Planner) -> float:
    """CPU seconds of one workload of 100 steps on full and sliding-window layers, without the capacity probe."""
    full = FullSpec(block_size=16, num_kv_heads=8, head_size=128)
    window = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=128)
    layers: list[tuple[Layer, Spec]] = [
        (Layer(name=f"layers.{n}.attn", spec=0), window if n % 2 else full) for n in range(32)
    ]
    case = build_case(layers, Settings(workers=(Worker(memory=2**32),), model_len=4096, layout="BLHNC"))
    workload = workload_for(case)
    answer = planner.ask([Question(case, depth="serve", workload=Workload(
        turns=workload.turns, fullness=workload.fullness, lag=workload.lag, drafts=workload.drafts,
    ))])[0]  # fmt: skip
    if answer.served is None or answer.served.violations or answer.served.turns < TURNS:
        raise RuntimeError(f"{planner.address}: the timed workload was not served: {answer}"[:500])
    return answer.served.seconds
