"""Two planners side by side under one contract: asks both, gathers evidence, and judges.

The questions put for one case depend on the contract. Under ``isolate`` a mixed case is accompanied by its two
one-mode parts, planned to groups only, for both planners: the parts carry law G6, and G7 between the planners.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import msgspec
from msgspec import Struct

from fuzz.planners.process import Planner, PlannerError, Question, UnusableEntry
from fuzz.planners.protocol import Answer, Hello
from fuzz.planners.trees import Launch
from fuzz.replay.memory.views import views_against
from fuzz.replay.requests.asking import workload_for
from fuzz.replay.requests.checks import breaches_of, severity_of, untold
from fuzz.ruling import Ruling, ruling_beside, ruling_of
from oracles.case import Case, is_mixed, replicated_part, sharded_part
from oracles.compare import Verdict, judge
from oracles.derived import DERIVED, OF_ANY_OWNER
from oracles.law import Breach, Contract, Evidence, Parts, stage_of
from oracles.laws import broken_laws
from oracles.plan import Died, Outcome, Planned, TimedOut, owner_of
from oracles.reference import RuleSet, Unruled, compare_with, expected_plan, refusals_by

Answers = dict[str, Answer]
"""One planner's answers about one case: ``case``, its parts ``sharded`` and ``replicated``, a derived form."""

SAMPLE = 8
"""One case in eight is planned twice (law G9) and asked in a changed form too (laws G8, G11, G13, C5), the forms in
turn: often enough to meet every path, cheap enough to keep.
"""

VIEWED = 32
"""Of one case in 32 vLLM makes the tensors that its workers would write to (check P7)."""

SERVED = 64
"""Where requests are served at all, one case in 64 does (checks Q1 to Q11): that costs as much as planning ten."""

TWICE, VIEWS, SERVE = "twice", "views", "serve"

EXTRAS = frozenset({TWICE, VIEWS, SERVE, *DERIVED})
"""What can be asked of a case beside its plan: the plan again, its views, to serve requests, each derived form."""

_DERIVED_NAMES = tuple(DERIVED)

NO_RULES = "no rule set for this version"

REFUSALS = frozenset({"R1"})
"""Laws that can be judged on a part with nothing else known."""


class PlannerInfo(Struct, frozen=True, kw_only=True):
    """A planner as reports name it; ``rules`` tells of the rules that judge it where its release names none."""

    role: str
    address: str
    version: str
    revision: str
    python: str
    replication_field: str
    hash_seed: int
    start_seconds: float
    rules: str = ""


class Judged(Struct, frozen=True, kw_only=True):
    """One case with the outcomes of both planners and the verdict."""

    case: Case
    unpatched: Outcome
    patched: Outcome
    verdict: Verdict
    planner_seconds: float


class Pending(Struct, frozen=True, kw_only=True):
    """A batch on its way: the cases, what is asked of each, and both planners' future answers."""

    cases: tuple[Case, ...]
    labels: tuple[tuple[str, ...], ...]
    unpatched: Future[list[Answer]]
    patched: Future[list[Answer]]


def choose_contract(asked: Contract | None, patched: Launch) -> Contract:
    """The contract under test: as asked, else what the patched planner promises, else ``native``."""
    return asked or patched.contract or "native"


def told_once(laws: list[Breach], reference: Sequence[Breach]) -> list[Breach]:
    """Broken laws, then the differences from the reference in other stages: one in a stage where a law is broken is
    that breach once more.
    """
    stages = {stage_of(breach) for breach in laws}
    return laws + [breach for breach in reference if stage_of(breach) not in stages]


def broken_in_parts(evidence: Evidence) -> list[Breach]:
    """What can be judged of the one-mode parts of a case with nothing else known: that they are refused, and how."""
    if evidence.parts is None:
        return []
    found: list[Breach] = []
    for outcome in (evidence.parts.sharded, evidence.parts.replicated):
        found += broken_laws(Evidence(case=evidence.case, contract=evidence.contract, outcome=outcome), REFUSALS)
        found += refusals_by(outcome)
    return found


def _breaches(evidence: Evidence, expected: Outcome | Unruled) -> list[Breach]:
    """What one planner broke: the laws, then the first difference from the reference."""
    return told_once(broken_laws(evidence), compare_with(expected, evidence.outcome))


def _with_looks(case: Case, answers: Answers, broken: list[Breach]) -> list[Breach]:
    """What was broken, and what views and requests show beside it: of a wrong plan they only tell that again."""
    viewed, served = answers.get(VIEWS), answers.get(SERVE)
    found = list(broken)
    if not broken:
        for look in (viewed, served):
            if look is not None and isinstance(look.outcome, Died | TimedOut):
                return broken_laws(Evidence(case=case, contract="native", outcome=look.outcome))
        if viewed is not None and isinstance(viewed.outcome, Planned):
            found += views_against(case, viewed.outcome.plan, viewed.views)
    if served is not None and served.served is not None:
        found += untold(broken, [b for b in breaches_of(case, served.served) if severity_of(b) == "fault"])
    return found


class Pair:
    """The unpatched and the patched planner. Different hash seeds, so that G7 also sees order by hash."""

    def __init__(
        self, unpatched: Launch, patched: Launch, contract: Contract, *, case_seconds: float, memory: int
    ) -> None:
        self._take(
            Planner(unpatched, hash_seed=1, case_seconds=case_seconds, memory=memory),
            Planner(patched, hash_seed=2, case_seconds=case_seconds, memory=memory),
            contract,
        )

    @classmethod
    def of(cls, unpatched: Planner, patched: Planner, contract: Contract) -> Pair:
        """A pair of planners that exist already; they stay the caller's to close."""
        pair = cls.__new__(cls)
        pair._take(unpatched, patched, contract)
        return pair

    def _take(self, unpatched: Planner, patched: Planner, contract: Contract) -> None:
        self.contract = contract
        self.unpatched = unpatched
        self.patched = patched
        self.serves = False
        self.config = ""
        """The ``config.json`` of the model that is asked about, where it is at hand."""
        self._asked = 0
        self._rulings: tuple[Ruling, Ruling] | None = None

    def start(self) -> tuple[Hello, Hello]:
        """Starts both side by side and waits. Raises PlannerError naming every planner that did not start."""
        waiting = [self.unpatched.start(), self.patched.start()]
        hellos, errors = [], []
        usage = False
        for future in waiting:
            try:
                hellos.append(future.result())
            except PlannerError as error:
                errors.append(str(error))
                usage = usage or isinstance(error, UnusableEntry)
        if errors:
            raise (UnusableEntry if usage else PlannerError)("\n".join(errors))
        return hellos[0], hellos[1]

    def infos(self) -> tuple[PlannerInfo, PlannerInfo]:
        """Both planners, for reports."""
        before, after = self.rulings()
        return (
            describe_planner("unpatched", self.unpatched, before),
            describe_planner("patched", self.patched, after),
        )

    def rulings(self) -> tuple[Ruling, Ruling]:
        """The rules that judge each planner. Raises PlannerError."""
        if self._rulings is None:
            self._rulings = ruling_of(self.unpatched), ruling_beside(self.patched, self.unpatched)
        return self._rulings

    def close(self) -> None:
        """Ends both processes."""
        self.unpatched.close()
        self.patched.close()

    def submit(self, cases: Sequence[Case]) -> Pending:
        """Puts a batch to both planners without waiting."""
        asked = [self._questions(case) for case in cases]
        questions = [question for one in asked for question in one.values()]
        return _pending(cases, asked, self.unpatched.submit(questions), self.patched.submit(questions))

    def submit_in_turn(self, cases: Sequence[Case], first: int) -> Pending:
        """Puts a batch to one planner and, when that has answered, to the other: a pair then keeps one core busy,
        and as many pairs as there are cores keep all of them busy. ``first`` is the number of the first case; what
        more is asked of a case follows its number. Raises PlannerError.
        """
        asked = self.questions(cases, first)
        questions = [question for one in asked for question in one.values()]
        unpatched = self.unpatched.submit(questions)
        unpatched.exception()  # waits
        return _pending(cases, asked, unpatched, self.patched.submit(questions))

    def questions(self, cases: Sequence[Case], first: int) -> list[dict[str, Question]]:
        """What is asked of each planner about each case, by label; ``first`` is the number of the first one."""
        self._asked = first
        return [self._questions(case) for case in cases]

    def _extras(self) -> frozenset[str]:
        """What more is asked of the next case: a sample, in turn."""
        self._asked += 1
        number = self._asked
        extras = set()
        if number % SAMPLE == 0:
            extras |= {TWICE, _DERIVED_NAMES[number // SAMPLE % len(_DERIVED_NAMES)]}
        if number % VIEWED == 1:
            extras.add(VIEWS)
        if self.serves and number % SERVED == 2:
            extras.add(SERVE)
        return frozenset(extras)

    def _questions(self, case: Case) -> dict[str, Question]:
        """What is asked of each planner about one case, by label."""
        extras = self._extras()
        asked = {"case": Question(case, "all", TWICE in extras)}
        if self.contract == "isolate" and is_mixed(case):
            asked["sharded"] = Question(sharded_part(case), "group")
            asked["replicated"] = Question(replicated_part(case), "group")
        if VIEWS in extras:
            asked[VIEWS] = Question(case, "views")
        if SERVE in extras:
            asked[SERVE] = Question(case, "serve", workload=workload_for(case))
        asked |= {name: Question(derive(case)) for name, derive in DERIVED.items() if name in extras}
        if self.config:
            asked = {label: msgspec.structs.replace(one, config=self.config) for label, one in asked.items()}
        return asked

    def collect(self, pending: Pending) -> Iterator[Judged]:
        """Waits for a batch and judges each of its cases. Raises PlannerError."""
        unpatched, patched = iter(pending.unpatched.result()), iter(pending.patched.result())
        for case, labels in zip(pending.cases, pending.labels, strict=True):
            yield self._judge(
                case, {label: next(unpatched) for label in labels}, {label: next(patched) for label in labels}
            )

    def ask(self, case: Case) -> Judged:
        """Asks both planners one case, and waits."""
        return next(self.collect(self.submit([case])))

    def _judge(self, case: Case, unpatched: Answers, patched: Answers) -> Judged:
        before, after = self.evidence(case, unpatched), self.evidence(case, patched)
        after = msgspec.structs.replace(after, counterpart=before.outcome, counterpart_parts=before.parts)
        outcomes = before.outcome, after.outcome
        expected = self._expected(case)
        verdict = judge(
            _with_looks(case, unpatched, _breaches(before, expected[0])),
            _with_looks(case, patched, _breaches(after, expected[1])),
            outcomes,
            broken_in_parts(before),
            _unruled(outcomes, expected),
        )
        return Judged(
            case=case,
            unpatched=outcomes[0],
            patched=outcomes[1],
            verdict=verdict,
            planner_seconds=sum(answer.seconds for answers in (unpatched, patched) for answer in answers.values()),
        )

    def _expected(self, case: Case) -> tuple[Outcome | Unruled, Outcome | Unruled]:
        """What the reference expects of each planner; worked out once where both follow the same rules."""
        before, after = (ruling.rules for ruling in self.rulings())
        first = self._planned_by(before, case)
        return first, first if before == after else self._planned_by(after, case)

    def _planned_by(self, rules: RuleSet | None, case: Case) -> Outcome | Unruled:
        return Unruled(reason=NO_RULES) if rules is None else expected_plan(case, rules, self.contract)

    def evidence(self, case: Case, answers: Answers) -> Evidence:
        """What one planner's answers show, for the laws."""
        main = answers["case"]
        asked = OF_ANY_OWNER if owner_of(main.outcome) else DERIVED.keys()
        parts = None
        if "sharded" in answers:
            parts = Parts(sharded=answers["sharded"].outcome, replicated=answers["replicated"].outcome)
        return Evidence(
            case=case,
            contract=self.contract,
            outcome=main.outcome,
            changed=main.changed,
            second=main.second,
            parts=parts,
            derived={name: answer.outcome for name, answer in answers.items() if name in asked},
        )


def _unruled(outcomes: tuple[Outcome, Outcome], expected: tuple[Outcome | Unruled, Outcome | Unruled]) -> str:
    """Why the reference is silent about one planner or both; empty where it speaks of both."""
    for outcome, one in zip(outcomes, expected, strict=True):
        if owner := owner_of(outcome):
            return f"no rules say how {owner} should group"
        if isinstance(one, Unruled):
            return one.reason
    return ""


def _pending(
    cases: Sequence[Case], asked: Sequence[dict[str, Question]], unpatched: Future[list[Answer]],
    patched: Future[list[Answer]],
) -> Pending:  # fmt: skip
    return Pending(cases=tuple(cases), labels=tuple(tuple(one) for one in asked), unpatched=unpatched, patched=patched)


def describe_planner(role: str, planner: Planner, ruling: Ruling | None = None) -> PlannerInfo:
    """What a report says of a started planner, and of the rules that judge it."""
    hello = planner.hello()
    return PlannerInfo(
        role=role, address=planner.address, version=hello.version, revision=planner.launch.revision,
        python=hello.python, replication_field=hello.replication_field, hash_seed=planner.hash_seed,
        start_seconds=round(hello.import_seconds, 2),
        rules="" if ruling is None else ruling.words,
    )  # fmt: skip
