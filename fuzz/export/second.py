"""The *second answer* that a finding is about, where one plan alone shows nothing: laws G8, G9, G11, G13, C5 and P7.

A script asks for both answers itself and compares one value of them, so it needs to know how the second one is asked
for and which value differs. The planner at fault is asked once more here to find that out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from fuzz.export.second_values import (
    ENDING,
    IS_PLACED,
    LENGTH_AND_TOKENS,
    MORE_READERS,
    SHAPES,
    ending_of,
    unsplit_layers,
    unsplit_readers,
)
from fuzz.export.values import READERS, Reader, first_difference
from fuzz.minimise.asking import NEEDED
from fuzz.pair import Pair
from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Answer
from fuzz.replay.memory.pools import Page
from fuzz.replay.memory.views import view_differences
from oracles.case import Case
from oracles.compare import Finding, difference_paths, judge
from oracles.derived import DERIVED, MORE_MEMORY, PERMUTED, RENAMED, WIDER_DCP, new_name
from oracles.law import Breach, Evidence, Side, broken_laws
from oracles.laws.derived import with_names
from oracles.plan import Outcome, Planned, Refused, owner_of, plan_of

How = Literal["renamed", "again", "twin", "permuted", "unsplit", "wider_dcp", "more_memory", "views"]

SEEDS = (1, 2, 0, 3, 4, 5, 6, 7)
"""Hash seeds under which a twin is sought, the pair's own first."""

SHOWN_SEEDS = 6
"""Of them in a reproducer: a process costs seconds. The first two differ here, and the rest are for another Python."""


SIDES: tuple[Side, ...] = ("unpatched", "patched")


class Second(Struct, frozen=True, kw_only=True):
    """A second answer: how a script asks for it, the value that differs, and what is due, in words.

    ``reader`` reads that value (None: of views, which have none). ``seeds`` begin with two under which plans differ.
    ``unsplit`` are the layers whose value is compared. ``case`` is the one that the second answer is about.
    """

    how: How
    due: str
    case: Case
    reader: Reader | None = None
    seeds: tuple[int, ...] = ()
    unsplit: tuple[str, ...] = ()
    worker: int = 0
    field: str = ""
    page: Page | None = None


def second_answer(pair: Pair, planner: Planner, case: Case, finding: Finding, outcome: Outcome) -> Second | None:
    """The second answer of ``planner`` that ``finding`` is about; None where the law has none, or the answer does not
    differ any more. ``outcome`` is the first one. Raises PlannerError.
    """
    if finding.law not in NEEDED or not isinstance(outcome, Planned | Refused) or owner_of(outcome):
        return None
    if finding.law == "P7":
        return _of_views(planner, Question(case, "views", config=pair.config), finding)
    if finding.law == "G9":
        return _again(planner, Question(case, "all", True, config=pair.config), outcome)
    name = {"G8": RENAMED, "G11": PERMUTED, "G13": WIDER_DCP}.get(finding.law)
    if name is None:  # C5 holds for either
        name = MORE_MEMORY if finding.first_difference.startswith(MORE_MEMORY) else WIDER_DCP
    derived = DERIVED[name](case)
    (answer,) = planner.ask([Question(derived, config=pair.config)])
    if not isinstance(answer.outcome, Planned | Refused):
        return None
    if name == RENAMED:
        return _renamed(derived, outcome, with_names(answer.outcome, new_name))
    if name == PERMUTED:
        return _permuted(derived, outcome)
    if finding.law == "G13":
        return _unsplit(case, derived, (outcome, answer.outcome), finding.first_difference)
    return _more(derived, outcome, answer.outcome, name)


def _readers(first: Outcome, second: Outcome) -> Reader | None:
    """The value by which two answers that should be one differ."""
    if ending_of(first) != ending_of(second):
        return ENDING
    one, other = plan_of(first), plan_of(second)
    assert one is not None and other is not None
    found = first_difference(one, other, (*READERS, *MORE_READERS))
    return found[0] if found is not None else None


def _words(reader: Reader, outcome: Outcome) -> str:
    """The value of an outcome, in words."""
    if reader is ENDING:
        return ending_of(outcome)
    plan = plan_of(outcome)
    assert plan is not None
    return repr(reader.read(plan))


def _renamed(case: Case, first: Outcome, second: Outcome) -> Second | None:
    reader = _readers(first, second)
    if reader is None:
        return None
    due = f"{reader.text} The same whatever the layers are called: {_words(reader, first)}"
    return Second(how="renamed", due=due, case=case, reader=reader)


def _again(planner: Planner, question: Question, first: Outcome) -> Second | None:
    (answer,) = planner.ask([question])
    if (found := _in_one_process(question.case, answer)) is not None:
        return found
    for twin in _twins(planner):
        with twin:
            (other,) = twin.ask([question])
        # What a planner remembers from its first plan shows in a fresh process, and no longer in one that has planned.
        if (found := _in_one_process(question.case, other)) is not None:
            return found
        reader = _readers(first, other.outcome) if isinstance(other.outcome, Planned | Refused) else None
        if reader is not None:
            seeds = planner.hash_seed, twin.hash_seed
            due = f"{reader.text} The same under every hash seed: {_words(reader, first)} as under {seeds[0]}"
            rest = (seed for seed in SEEDS if seed not in seeds)
            return Second(how="twin", due=due, case=question.case, reader=reader, seeds=(*seeds, *rest)[:SHOWN_SEEDS])
    return None


def _in_one_process(case: Case, answer: Answer) -> Second | None:
    """Two plans by one process that differ."""
    first, second = answer.outcome, answer.second
    if not isinstance(first, Planned | Refused) or not isinstance(second, Planned | Refused):
        return None
    reader = _readers(first, second)
    if reader is None:
        return None
    due = f"{reader.text} The same when planned again: {_words(reader, first)}"
    return Second(how="again", due=due, case=case, reader=reader)


def twin_findings(pair: Pair, case: Case, outcomes: tuple[Outcome, Outcome], fingerprint: str) -> tuple[Finding, ...]:
    """The finding of law G9 between processes, which a campaign sees between its lanes and a pair alone cannot.

    ``outcomes`` are those of the unpatched and the patched planner. Nothing is asked for a ``fingerprint`` that no such
    finding can have. Raises PlannerError.
    """
    if fingerprint not in {
        Breach(law="G9", path=path, detail="").fingerprint(side) for path in difference_paths() for side in SIDES
    }:
        return ()
    question = Question(case, config=pair.config)
    for both in zip(_twins(pair.unpatched), _twins(pair.patched), strict=True):
        with both[0], both[1]:
            answers = [twin.submit([question]) for twin in both]
            sides = [
                broken_laws(
                    Evidence(case=case, contract=pair.contract, outcome=first, twin=answer.result()[0].outcome),
                    frozenset({"G9"}),
                )
                for first, answer in zip(outcomes, answers, strict=True)
            ]
        found = judge(sides[0], sides[1], outcomes).findings
        if any(one.fingerprint == fingerprint for one in found):
            return found
    return ()


def _twins(planner: Planner) -> Iterator[Planner]:
    """The same planner in processes with other hash seeds, not started yet."""
    for seed in SEEDS:
        if seed != planner.hash_seed:
            yield Planner(planner.launch, hash_seed=seed, case_seconds=planner.case_seconds, memory=planner.memory)


def _permuted(case: Case, first: Outcome) -> Second:
    plan = plan_of(first)
    assert plan is not None
    shapes = SHAPES.read(plan)
    due = "Groups in each order of equal layers, or a refusal in each"
    if shapes is not None:
        due = f"{SHAPES.text} The same in each order of equal layers: {shapes!r}"
    return Second(how="permuted", due=due, case=case, reader=SHAPES)


def _unsplit(case: Case, derived: Case, outcomes: Sequence[Outcome], path: str) -> Second | None:
    first, second = (plan_of(one) for one in outcomes)
    assert first is not None and second is not None
    found = first_difference(first, second, unsplit_readers(case, path))
    if found is None:
        return None
    reader, value, _ = found
    due = f"{reader.text} The same with twice the DCP ranks: {value!r}"
    return Second(how="unsplit", due=due, case=derived, reader=reader, unsplit=unsplit_layers(case))


def _more(case: Case, first: Outcome, second: Outcome, name: str) -> Second | None:
    plans = plan_of(first), plan_of(second)
    assert plans[0] is not None and plans[1] is not None
    words = "twice the memory" if name == MORE_MEMORY else "twice the DCP ranks"
    how: How = "more_memory" if name == MORE_MEMORY else "wider_dcp"
    held = LENGTH_AND_TOKENS.read(plans[0])
    if held is None or plans[1].placement is None:
        return Second(how=how, due=f"a plan with {words} too", case=case, reader=IS_PLACED)
    due = f"{LENGTH_AND_TOKENS.text} With {words} no less than {held!r}"
    return Second(how=how, due=due, case=case, reader=LENGTH_AND_TOKENS)


def _of_views(planner: Planner, question: Question, finding: Finding) -> Second | None:
    (answer,) = planner.ask([question])
    if not isinstance(answer.outcome, Planned):
        return None
    field = finding.first_difference.removesuffix(".forced").rpartition(".")[2]
    found = list(view_differences(question.case, answer.outcome.plan, answer.views))
    one = next((one for one in found if (one.field, one.error) == (field, finding.error)), None)
    if one is None:
        return None
    layer = one.page.layer if one.page is not None else ""
    due = {
        "error": f"a view of each layer of worker {one.worker}",
        "missing": f"a view of {layer}, on worker {one.worker}",
        "empty": f"a view of {layer} that holds something, on worker {one.worker}",
        "place": f"the view of {layer} on its pages, on worker {one.worker}",
    }[field]
    return Second(how="views", due=due, case=question.case, worker=one.worker, field=field, page=one.page)


def template_of(second: Second | None) -> str:
    """The template of the part of a reproducer that asks and compares."""
    if second is None:
        return "check.py.j2"
    return "views.py.j2" if second.how == "views" else "again.py.j2"
