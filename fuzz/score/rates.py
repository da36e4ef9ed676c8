"""In how many cases of a stream each mutant shows: a steadier measure of a generator than the first detection.

A trial ends with the first finding, so its length is one draw from a wide distribution, and its median over a few seeds
swings. Here every case of a stream is asked, and the share of those that show a mutant tells how long the first is
waited for: half of all streams show a mutant of share ``p`` within ln 0.5 / ln (1 - p) cases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct

from fuzz.known import KnownFindings
from fuzz.pair import Answers
from fuzz.planners.process import Planner, PlannerError
from fuzz.score.mutants import Mutant
from fuzz.score.run import on_each
from fuzz.score.streams import DRAWN, Asked, Sound, Strategy
from fuzz.score.trial import differs, reported

BATCH = 25
"""Cases in flight: a mutant plans one batch while another is judged."""

RARE = 0.02
"""A mutant that fewer cases show is met by luck within the hundred that a trial takes at least."""


class Shown(Struct, frozen=True, kw_only=True):
    """A mutant with the number of cases of each strategy that show it; ``error`` when it could not be started."""

    name: str
    kind: str
    shown: dict[Strategy, int]
    error: str = ""


class Quartiles(Struct, frozen=True, kw_only=True):
    """The quarter, the half and three quarters of the mutants lie below these."""

    lower: float
    median: float
    upper: float


class Rates(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz score --rates N --json`` prints, over the mutants with a defect.

    ``cases`` is the number asked of each strategy. ``shares`` are those of kvfuzz's cases that show a mutant, ``rare``
    how many mutants fewer than one in fifty show. ``times`` are ratios of shares, kvfuzz to naive, and ``first`` those
    of the cases to the first detection that they imply; a mutant that no naive case shows counts as shown by one, so
    that both are too small for it, and one that no case of kvfuzz's shows counts with a ratio of 0.
    """

    cases: int
    seeds: tuple[int, ...]
    mutants: tuple[Shown, ...]
    shares: dict[Strategy, Quartiles]
    rare: dict[Strategy, int]
    never: dict[Strategy, int]
    times: Quartiles
    first: Quartiles


def rate_mutants(
    mutants: Sequence[Mutant], seeds: Sequence[int], cases: int, known: KnownFindings, note: Callable[[Shown], None]
) -> list[Shown]:
    """Asks each mutant ``cases`` cases of each seed and strategy; ``note`` hears of each as it is done.

    Raises:
        PlannerError: a sound planner could not be started.
    """

    def rated(mutant: Mutant, planner: Planner, sound: Sound) -> Shown:
        try:
            planner.hello()
        except PlannerError as error:
            return Shown(name=mutant.name, kind=mutant.kind, shown={}, error=str(error))
        shown = {one: sum(_shown(planner, sound, one, seed, cases, known) for seed in seeds) for one in DRAWN}
        made = Shown(name=mutant.name, kind=mutant.kind, shown=shown)
        note(made)
        return made

    return on_each(mutants, rated)


def _shown(planner: Planner, sound: Sound, strategy: Strategy, seed: int, cases: int, known: KnownFindings) -> int:
    """How many of the first cases of a stream show the mutant."""
    batches = [sound.cases(strategy, seed, first, min(BATCH, cases - first)) for first in range(0, cases, BATCH)]
    futures = [planner.submit([question for one in batch for question in one.questions]) for batch in batches]
    count = 0
    for batch, future in zip(batches, futures, strict=True):
        answers = iter(future.result())
        for asked in batch:
            count += _shows(asked, {label: next(answers) for label in asked.labels}, sound, known)
    return count


def _shows(asked: Asked, answers: Answers, sound: Sound, known: KnownFindings) -> bool:
    other = sound.judged(asked.case, asked.expected, answers, asked.sound.evidence)
    return differs(asked, other) and bool(reported(asked, other, "all", known))


def summarise_rates(shown: Sequence[Shown], seeds: Sequence[int], cases: int) -> Rates:
    """The rates of all mutants; ``cases`` is the number of each seed. Equivalent mutants have none."""
    asked = cases * len(seeds)
    defects = [one for one in shown if one.kind != "equivalent" and not one.error]
    ours, naive = ([one.shown[strategy] / asked for one in defects] for strategy in ("kvfuzz", "naive"))
    pairs = [(one, max(other, 1 / asked)) for one, other in zip(ours, naive, strict=True)]
    return Rates(
        cases=asked, seeds=tuple(seeds),
        mutants=tuple(sorted(shown, key=lambda one: (one.shown.get("kvfuzz", 0), one.name))),
        shares={"kvfuzz": _quartiles(ours), "naive": _quartiles(naive)},
        rare={"kvfuzz": _below(ours, RARE), "naive": _below(naive, RARE)},
        never={"kvfuzz": _below(ours, 1 / asked), "naive": _below(naive, 1 / asked)},
        times=_quartiles([one / other for one, other in pairs]),
        first=_quartiles([cases_to_first(other) / cases_to_first(one) if one else 0.0 for one, other in pairs]),
    )  # fmt: skip


def cases_to_first(share: float) -> float:
    """Cases within which half of all streams show what ``share`` (above 0) of the cases show; at least one."""
    return max(1.0, math.log(0.5) / math.log1p(-share)) if share < 1 else 1.0


def _below(shares: Sequence[float], bound: float) -> int:
    return sum(share < bound for share in shares)


def _quartiles(values: Sequence[float]) -> Quartiles:
    if len(values) < 2:
        value = round(values[0], 4) if values else 0.0
        return Quartiles(lower=value, median=value, upper=value)
    lower, median, upper = (round(one, 4) for one in statistics.quantiles(values, n=4, method="inclusive"))
    return Quartiles(lower=lower, median=median, upper=upper)
