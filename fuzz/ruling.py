"""Which rules judge a planner: those of its release, or those that its answers fit best.

A checkout that was never built calls itself ``dev`` and a fork counts in its own way, so that most branches name no
release. What they are judged by is then found out: they are asked the cases of the corpus about which the rule sets
disagree, and the set that expects most of the answers is taken. Reports say so.
"""

from __future__ import annotations

import functools
from weakref import WeakKeyDictionary

from msgspec import Struct

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.planners.process import Planner, Question
from oracles.case import Case
from oracles.law import Contract
from oracles.plan import Outcome, Unsupported
from oracles.reference import RULE_SETS, RuleSet, Unruled, adapted, compare_with, expected_plan, rules_for

FEWEST = 10
"""Answers that a choice must rest on."""

LEAST = 0.5
"""Share of the answers that the chosen rules must expect. Of the releases' own answers to these cases, among them many
whose faults the corpus keeps, their own rules expect seven in ten or more, and those of the release beside six.
"""


class Ruling(Struct, frozen=True, kw_only=True):
    """The rules that judge a planner; None where none are known. They were chosen because they expect ``fits`` of
    ``asked`` answers; both are 0 where the release names them.
    """

    rules: RuleSet | None
    fits: int = 0
    asked: int = 0

    @property
    def words(self) -> str:
        """How a report tells of rules that no release names; empty where one does."""
        if self.rules is not None:
            told = f"judged by the rules of {self.rules.name}, which {self.fits} of {self.asked} telling cases fit"
            return told if self.asked else ""
        return "no rule set fits: judged by the laws and the comparison alone"


_RULINGS: WeakKeyDictionary[Planner, Ruling] = WeakKeyDictionary()


def ruling_of(planner: Planner) -> Ruling:
    """The rules of a planner. Raises PlannerError."""
    if planner not in _RULINGS:
        rules = _by_release(planner)
        _RULINGS[planner] = Ruling(rules=rules) if rules is not None else by_answers(planner)
    return _RULINGS[planner]


def ruling_beside(planner: Planner, base: Planner) -> Ruling:
    """The rules of a planner that is compared with ``base``. Where neither names a release they are those of the base:
    what is under test must not choose its own judge. Raises PlannerError.
    """
    hello, ruling = planner.hello(), ruling_of(base)
    own = _by_release(planner) is not None or not ruling.asked
    if own or ruling.rules is None or ruling.rules.generation != hello.generation:
        return ruling_of(planner)
    return Ruling(rules=adapted(ruling.rules, hello.capabilities), fits=ruling.fits, asked=ruling.asked)


def _by_release(planner: Planner) -> RuleSet | None:
    hello = planner.hello()
    return rules_for(hello.version, hello.generation, hello.capabilities)


def by_answers(planner: Planner) -> Ruling:
    """The rules that expect most of a planner's answers to the cases about which rules disagree; of equal ones those
    whose release has the planner's capabilities, then the newest. None where these are too few. Raises PlannerError.
    """
    hello = planner.hello()
    released = [rules for rules in RULE_SETS.values() if rules.generation == hello.generation]
    as_followed = [(rules, adapted(rules, hello.capabilities)) for rules in released]
    as_followed.sort(key=lambda pair: pair[0] == pair[1])
    candidates = tuple(rules for _, rules in as_followed)
    telling = telling_cases(candidates, planner.launch.contract or "native")
    answers = planner.ask([Question(case) for case, _ in telling])
    best = Ruling(rules=None)
    for at, rules in enumerate(candidates):
        judged = [
            not compare_with(expected[at], answer.outcome)
            for (_, expected), answer in zip(telling, answers, strict=True)
            if not isinstance(answer.outcome, Unsupported) and not isinstance(expected[at], Unruled)
        ]
        fits, asked = sum(judged), len(judged)
        if asked >= FEWEST and fits >= LEAST * asked and fits * best.asked >= best.fits * asked:
            best = Ruling(rules=rules, fits=fits, asked=asked)
    return best


@functools.cache
def telling_cases(
    candidates: tuple[RuleSet, ...], contract: Contract
) -> tuple[tuple[Case, tuple[Outcome | Unruled, ...]], ...]:
    """The small cases of the corpus about which rule sets disagree, each with what every set expects."""
    told = []
    for entry in load_corpus(corpus_folder()):
        if not entry.name.startswith("models/"):
            expected = tuple(expected_plan(entry.case, rules, contract) for rules in candidates)
            if any(one != expected[0] for one in expected):
                told.append((entry.case, expected))
    return tuple(told)
