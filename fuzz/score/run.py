"""The score of a set of mutants: one trial for each seed and strategy, then the medians.

The sound planners stay warm for all mutants; a mutant's process is started while the one before it is tried, so that at
most three mutants and two sound planners run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from fuzz.known import KnownFindings
from fuzz.planners.process import Planner, PlannerError
from fuzz.planners.trees import Config, open_launch
from fuzz.score.mutants import BASE_ADDRESS, Mutant
from fuzz.score.streams import Oracle, Sound, Strategy
from fuzz.score.trial import REST, Limits, Trial, run_trial

Result = TypeVar("Result")

AHEAD = 2
"""Mutants that are started before their turn: importing vLLM takes 6 s, most trials take less."""

MUTANT_HASH_SEED = 2
"""Another than the sound planner's, as in a run, so that order by hash is seen."""

EQUIVALENT_CASES = 300
"""Cases per seed after which an equivalent mutant has kept silent long enough."""

COMPARED_CASES = 100
"""Cases per seed for the lesser oracles: ten times what the full one needs of most mutants."""

NAIVE_CASES = 100
NAIVE_FACTOR = 6
"""Cases per seed for the naive strategy: this many, or this many times what kvfuzz needed, if that is more."""


class Setting(Struct, frozen=True, kw_only=True):
    """``seeds`` are the streams; ``seconds`` (CPU) and ``cases`` bound one trial; ``compare``: with the lesser oracles
    and the naive strategy too.
    """

    seeds: tuple[int, ...]
    seconds: float
    cases: int | None = None
    compare: bool = True


class Tried(Struct, frozen=True, kw_only=True):
    """A mutant with its trials; ``error`` instead when its process could not be started."""

    mutant: Mutant
    trials: tuple[Trial, ...] = ()
    error: str = ""


def try_mutants(
    mutants: Sequence[Mutant], setting: Setting, known: KnownFindings, note: Callable[[Tried], None]
) -> list[Tried]:
    """Tries every mutant; ``note`` hears of each as it is done.

    Raises:
        PlannerError: a sound planner could not be started.
    """

    def tried(mutant: Mutant, planner: Planner, sound: Sound) -> Tried:
        made = _tried(mutant, planner, sound, setting, known)
        note(made)
        return made

    return on_each(mutants, tried)


def on_each(mutants: Sequence[Mutant], do: Callable[[Mutant, Planner, Sound], Result]) -> list[Result]:
    """What ``do`` gives for each mutant, its planner (started, or failed to) and the sound planner of its contract.

    Raises:
        PlannerError: a sound planner could not be started.
    """
    sound = {
        contract: Sound(open_launch(BASE_ADDRESS[contract], Config()), contract)
        for contract in dict.fromkeys(mutant.base for mutant in mutants)
    }
    started: dict[str, Planner] = {}
    done: list[Result] = []
    try:
        waiting = [one.start() for one in sound.values()]
        for at, mutant in enumerate(mutants):
            for due in mutants[at : at + 1 + AHEAD]:
                if due.name not in started:
                    started[due.name] = planner_of(due)
                    started[due.name].start()
            if at == 0:
                for future in waiting:
                    future.result()
            planner = started.pop(mutant.name)
            try:
                done.append(do(mutant, planner, sound[mutant.base]))
            finally:
                planner.close()
    finally:
        for planner in started.values():
            planner.close()
        for one in sound.values():
            one.close()
    return done


def planner_of(mutant: Mutant) -> Planner:
    """The planner with the defect; nothing is started yet."""
    return Planner(open_launch(mutant.address, Config()), hash_seed=MUTANT_HASH_SEED)


def _tried(mutant: Mutant, planner: Planner, base: Sound, setting: Setting, known: KnownFindings) -> Tried:
    try:
        planner.hello()
    except PlannerError as error:
        return Tried(mutant=mutant, error=str(error))
    trials = []

    def tried(strategy: Strategy, limits: Limits) -> list[Trial]:
        made = [run_trial(planner, base, strategy, seed, limits, known) for seed in setting.seeds]
        trials.extend(made)
        return made

    if mutant.kind == "equivalent":
        cases = min(setting.cases or EQUIVALENT_CASES, EQUIVALENT_CASES)
        tried("kvfuzz", Limits(seconds=setting.seconds, cases=cases, rest=0, oracles=()))
    elif not setting.compare:
        tried("kvfuzz", Limits(seconds=setting.seconds, cases=setting.cases, rest=0, oracles=()))
    else:
        limits = Limits(seconds=setting.seconds, cases=setting.cases, rest=COMPARED_CASES, oracles=REST)
        needed = [found.cases for t in tried("kvfuzz", limits) if (found := t.detected.get("all"))]
        bound = max(NAIVE_CASES, NAIVE_FACTOR * sorted(needed)[len(needed) // 2]) if needed else NAIVE_CASES
        tried("naive", Limits(seconds=setting.seconds, cases=bound, rest=0, oracles=()))
    return Tried(mutant=mutant, trials=tuple(trials))


__all__ = ["Oracle", "Setting", "Tried", "on_each", "planner_of", "try_mutants"]
