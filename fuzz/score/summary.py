"""From trials to a score: medians over the seeds, survivors first, and the ratios to lesser arrangements."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from fuzz.score.run import Setting, Tried
from fuzz.score.streams import Oracle, Strategy
from fuzz.score.trial import REST, Trial

ENOUGH_SEEDS = 0.8
"""Share of the seeds in which a mutant must be detected, so that none counts by the luck of one."""


class Arrangement(Struct, frozen=True, kw_only=True):
    """A strategy with an oracle, as the ratio table names it."""

    name: str
    strategy: Strategy
    oracle: Oracle


FULL = Arrangement(name="kvfuzz", strategy="kvfuzz", oracle="all")
LESSER = (
    Arrangement(name="naive strategy", strategy="naive", oracle="all"),
    *(Arrangement(name=oracle, strategy="kvfuzz", oracle=oracle) for oracle in REST),
)


class Median(Struct, frozen=True, kw_only=True):
    """A median over seeds. ``at_least``: the seed in the middle ended without a detection, after this much."""

    value: float
    at_least: bool = False


class MutantScore(Struct, frozen=True, kw_only=True):
    """One mutant. ``reached``, ``triggered`` and ``detected`` count seeds; ``by`` are the laws that told of it, the
    most frequent first, and ``by_itself`` those that did without comparing with the sound planner. ``as_said``: one of
    them is named by the mutant. ``lesser`` has the median cases under the other arrangements.
    """

    name: str
    base: str
    kind: str
    report: str
    summary: str
    seeds: int
    reached: int
    triggered: int
    detected: int
    survived: bool
    cases: Median | None
    seconds: Median | None
    by: tuple[str, ...]
    by_itself: tuple[str, ...]
    as_said: bool
    lesser: dict[str, Median]
    trials: tuple[Trial, ...]
    error: str = ""


class Ratio(Struct, frozen=True, kw_only=True):
    """A lesser arrangement: the share of mutants it detects in the median seed, their median cases, and how many times
    the cases of kvfuzz it needs (median over the mutants that kvfuzz detects; ``at_least`` as in ``Median``).
    """

    name: str
    detected: int
    mutants: int
    cases: Median | None
    times: Median | None


class Score(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz score --json`` prints. ``score`` is the share of the mutants with a defect that were detected."""

    score: float
    mutants: int
    detected: int
    survivors: tuple[str, ...]
    equivalents: int
    equivalents_reported: tuple[str, ...]
    errors: tuple[str, ...]
    seeds: tuple[int, ...]
    budget_seconds: float
    ratios: tuple[Ratio, ...]
    scores: tuple[MutantScore, ...]


def summarise(tried: Sequence[Tried], setting: Setting) -> Score:
    """The score of all mutants tried."""
    scores = sorted((_score_of(one, setting) for one in tried), key=_order)
    defects = [one for one in scores if one.kind != "equivalent" and not one.error]
    found = [one for one in defects if not one.survived]
    equivalent = [one for one in scores if one.kind == "equivalent" and not one.error]
    return Score(
        score=round(len(found) / len(defects), 4) if defects else 1.0,
        mutants=len(defects),
        detected=len(found),
        survivors=tuple(one.name for one in defects if one.survived),
        equivalents=len(equivalent),
        equivalents_reported=tuple(one.name for one in equivalent if one.detected),
        errors=tuple(one.name for one in scores if one.error),
        seeds=setting.seeds,
        budget_seconds=setting.seconds,
        ratios=tuple(_ratios(defects)) if setting.compare else (),
        scores=tuple(scores),
    )


def _order(one: MutantScore) -> tuple[bool, bool, bool, float, str]:
    """Errors, survivors, then the slowest; equivalent mutants last, unless one was reported."""
    silent = one.kind == "equivalent" and not one.detected
    return silent, not one.error, not one.survived, -(one.cases.value if one.cases else 0.0), one.name


def _score_of(tried: Tried, setting: Setting) -> MutantScore:
    mutant = tried.mutant
    own = [trial for trial in tried.trials if trial.strategy == "kvfuzz"]
    found = [trial.detected["all"] for trial in own if "all" in trial.detected]
    alone = [trial.detected["no comparison"] for trial in own if "no comparison" in trial.detected]
    by, by_itself = _most_frequent(one.by for one in found), _most_frequent(one.by for one in alone)
    enough = len(found) >= math.ceil(ENOUGH_SEEDS * len(setting.seeds))
    return MutantScore(
        name=mutant.name, base=mutant.base, kind=mutant.kind, report=mutant.report, summary=mutant.summary,
        seeds=len(own), error=tried.error,
        reached=sum(trial.reached is not None for trial in own),
        triggered=sum(trial.triggered is not None for trial in own),
        detected=len(found),
        survived=mutant.kind != "equivalent" and not enough,
        cases=_median([(t.detected["all"].cases, False) if "all" in t.detected else (t.cases, True) for t in own]),
        seconds=_median(
            [(t.detected["all"].seconds, False) if "all" in t.detected else (t.seconds, True) for t in own]
        ),
        by=by, by_itself=by_itself,
        as_said=bool(set(mutant.seen_by) & {*by, *by_itself}),
        lesser={one.name: median for one in LESSER if (median := _median(_needed(tried.trials, one))) is not None},
        trials=tried.trials,
    )  # fmt: skip


def _most_frequent(laws: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(law for law, _ in Counter(law for one in laws for law in one).most_common())


def _needed(trials: Sequence[Trial], arrangement: Arrangement) -> list[tuple[float, bool]]:
    """Cases that each seed needed, and whether it ended without a detection."""
    return [
        (found.cases, False) if (found := trial.detected.get(arrangement.oracle)) else (trial.cases, True)
        for trial in trials
        if trial.strategy == arrangement.strategy
    ]


def _median(values: Sequence[tuple[float, bool]]) -> Median | None:
    """The middle one; what ended without a detection needs more than any that did not."""
    if not values:
        return None
    value, open_ended = sorted(values, key=lambda one: (one[1], one[0]))[len(values) // 2]
    return Median(value=value, at_least=open_ended)


def _ratios(defects: Sequence[MutantScore]) -> list[Ratio]:
    rows = []
    for arrangement in (FULL, *LESSER):
        needed = [(one, one.cases if arrangement is FULL else one.lesser.get(arrangement.name)) for one in defects]
        known = [(one, median) for one, median in needed if median is not None]
        found = [median.value for _, median in known if not median.at_least]
        times = [
            (median.value / one.cases.value, median.at_least)
            for one, median in known
            if one.cases is not None and not one.cases.at_least
        ]
        rows.append(Ratio(
            name=arrangement.name, detected=len(found), mutants=len(known),
            cases=Median(value=statistics.median(found)) if found else None, times=_middle(times),
        ))  # fmt: skip
    return rows


def _middle(values: Sequence[tuple[float, bool]]) -> Median | None:
    """The middle ratio. One that is only a lower bound counts as its bound, so that the middle is one too."""
    if not values:
        return None
    value, at_least = sorted(values)[len(values) // 2]
    return Median(value=round(value, 2), at_least=at_least)
