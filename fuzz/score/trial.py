"""One mutant on one stream of cases: from a cold start to the first finding that each oracle would report."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future

from msgspec import Struct, structs

from fuzz.known import KnownFindings
from fuzz.planners.process import Planner
from fuzz.planners.protocol import Answer
from fuzz.score.streams import Asked, Judged, Oracle, Sound, Strategy, fingerprints, told, verdict_on
from oracles.compare import FAILING, cause_of
from oracles.law import Evidence
from oracles.plan import Died, Outcome, Refused, TimedOut

BATCHES = (2, 4, 8, 16, 24)
"""Cases per batch: most defects are met within a few cases, and what is asked beyond is lost."""

REST: tuple[Oracle, ...] = ("no reference", "no laws", "no comparison", "crashes only")
"""The oracles that kvfuzz's own is compared with."""

REST_FACTOR = 2


class Limits(Struct, frozen=True, kw_only=True):
    """When a trial ends without a finding.

    ``seconds`` is CPU time of both planners and the judge, one after another; ``cases`` bounds the cases for the full
    oracle (None: time alone does), ``rest`` those for the lesser oracles in ``oracles``, or ``REST_FACTOR`` times what
    the full one needed, if that is more.
    """

    seconds: float
    cases: int | None
    rest: int
    oracles: tuple[Oracle, ...] = REST


class Detection(Struct, frozen=True, kw_only=True):
    """The case (counted from 1) at which an oracle first reports the mutant, after how long, and through what."""

    cases: int
    seconds: float
    by: tuple[str, ...]


class Trial(Struct, frozen=True, kw_only=True):
    """What one mutant did on one stream. ``reached`` and ``triggered`` are the first such cases, counted from 1."""

    strategy: Strategy
    seed: int
    cases: int
    seconds: float
    reached: int | None
    triggered: int | None
    detected: dict[Oracle, Detection]


def run_trial(
    planner: Planner, sound: Sound, strategy: Strategy, seed: int, limits: Limits, known: KnownFindings
) -> Trial:
    """Asks the mutant the cases of a stream until every oracle has reported it or the limits are met.

    Raises:
        PlannerError: a process could not be started.
    """
    trial = Trial(strategy=strategy, seed=seed, cases=0, seconds=0.0, reached=None, triggered=None, detected={})
    for asked, answers in _answered(planner, sound, strategy, seed):
        other = sound.judged(asked.case, asked.expected, answers, asked.sound.evidence)
        count, seconds = trial.cases + 1, trial.seconds + asked.sound.seconds + other.seconds
        detected = dict(trial.detected)
        for oracle in ("all", *limits.oracles):
            if oracle not in detected:
                by = crashes(asked, other) if oracle == "crashes only" else reported(asked, other, oracle, known)
                if by:
                    detected[oracle] = Detection(cases=count, seconds=round(seconds, 3), by=by)
        here = any(answer.reached for answer in answers.values())
        trial = structs.replace(
            trial, cases=count, seconds=seconds, detected=detected,
            reached=trial.reached or (count if here else None),
            triggered=trial.triggered or (count if differs(asked, other) else None),
        )  # fmt: skip
        if _is_over(trial, limits):
            break
    return structs.replace(trial, seconds=round(trial.seconds, 3))


def _answered(
    planner: Planner, sound: Sound, strategy: Strategy, seed: int
) -> Iterator[tuple[Asked, dict[str, Answer]]]:
    """Endless cases with the mutant's answers; the next batch is planned while one is judged."""
    first, turn = 0, 0
    queue: deque[tuple[list[Asked], Future[list[Answer]]]] = deque()
    while True:
        while len(queue) < 2:
            count = BATCHES[min(turn, len(BATCHES) - 1)]
            batch = sound.cases(strategy, seed, first, count)
            queue.append((batch, planner.submit([q for one in batch for q in one.questions])))
            first, turn = first + count, turn + 1
        batch, future = queue.popleft()
        answers = iter(future.result())
        for asked in batch:
            yield asked, {label: next(answers) for label in asked.labels}


def _is_over(trial: Trial, limits: Limits) -> bool:
    full = "all" in trial.detected or trial.seconds >= limits.seconds
    full = full or (limits.cases is not None and trial.cases >= limits.cases)
    needed = trial.detected["all"].cases if "all" in trial.detected else 0
    enough = trial.cases >= max(limits.rest, REST_FACTOR * needed)
    return full and (enough or all(oracle in trial.detected for oracle in limits.oracles))


def reported(asked: Asked, other: Judged, oracle: Oracle, known: KnownFindings) -> tuple[str, ...]:
    """The laws through which ``kvfuzz run`` would fail on this case for what is not known of the sound planner."""
    old = fingerprints(told(asked.sound, oracle))
    return tuple(dict.fromkeys(
        finding.law
        for finding in verdict_on(asked, other, oracle).findings
        if finding.verdict in FAILING
        and not known.covers(finding.fingerprint, finding.verdict)
        and (finding.verdict == "regression" or finding.fingerprint not in old)
    ))  # fmt: skip


def crashes(asked: Asked, other: Judged) -> tuple[str, ...]:
    """The ways in which the mutant fails where the sound planner does not: a death, a hang, another exception."""
    before = _failures(asked.sound.evidence.outcome)
    return tuple(cause for cause in _failures(other.evidence.outcome) if cause not in before)


def _failures(outcome: Outcome) -> tuple[str, ...]:
    if isinstance(outcome, Refused):
        return tuple(f"{refusal.stage}: {refusal.type}" for refusal in outcome.refusals)
    return (cause_of(outcome)[1],) if isinstance(outcome, Died | TimedOut) else ()


def differs(asked: Asked, other: Judged) -> bool:
    """Whether the mutant did anything else than the sound planner."""
    a, b = asked.sound.evidence, other.evidence
    return _said(a) != _said(b)


def _said(evidence: Evidence) -> tuple[object, ...]:
    """All that a planner said, without the functions through which it refused: a planted one is another by nature."""
    parts = (evidence.parts.sharded, evidence.parts.replicated) if evidence.parts is not None else ()
    outcomes = (evidence.outcome, evidence.second, *parts, *evidence.derived.values())
    return evidence.changed, tuple(_without_frames(outcome) for outcome in outcomes)


def _without_frames(outcome: Outcome | None) -> Outcome | None:
    if not isinstance(outcome, Refused):
        return outcome
    return structs.replace(outcome, refusals=tuple(structs.replace(r, frames=()) for r in outcome.refusals))
