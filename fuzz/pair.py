"""Two planners side by side under one contract: asks both, gathers evidence, and judges.

The questions put for one case depend on the contract. Under ``isolate`` a mixed case is accompanied by its two
one-mode parts, planned to groups only, for both planners: the parts carry law G6, and G7 between the planners.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future

import msgspec
from msgspec import Struct

from fuzz.planners.process import Planner, PlannerError, Question
from fuzz.planners.protocol import Answer, Hello
from fuzz.planners.trees import Launch
from oracles.case import Case, is_mixed, replicated_part, sharded_part
from oracles.compare import Verdict, judge
from oracles.law import Contract, Evidence, Parts
from oracles.laws import broken_laws
from oracles.plan import Outcome

TWICE_EVERY = 8
"""One case in eight is planned twice (law G9): often enough to meet every path, cheap enough to keep."""


REFUSALS = frozenset({"R1"})
"""Laws that can be judged on a part with nothing else known."""


class PlannerInfo(Struct, frozen=True, kw_only=True):
    """A planner as reports name it."""

    role: str
    address: str
    version: str
    revision: str
    python: str
    replication_field: str
    hash_seed: int
    start_seconds: float


class Judged(Struct, frozen=True, kw_only=True):
    """One case with the outcomes of both planners and the verdict."""

    case: Case
    unpatched: Outcome
    patched: Outcome
    verdict: Verdict
    planner_seconds: float


class Pending(Struct, frozen=True, kw_only=True):
    """A batch on its way: the cases, and each planner's future answers."""

    cases: tuple[Case, ...]
    unpatched: Future[list[Answer]]
    patched: Future[list[Answer]]


def choose_contract(asked: Contract | None, patched: Launch) -> Contract:
    """The contract under test: as asked, else what the patched planner promises, else ``native``."""
    return asked or patched.contract or "native"


class Pair:
    """The unpatched and the patched planner. Different hash seeds, so that G7 also sees order by hash."""

    def __init__(
        self, unpatched: Launch, patched: Launch, contract: Contract, *, case_seconds: float, memory: int
    ) -> None:
        self.contract = contract
        self.unpatched = Planner(unpatched, hash_seed=1, case_seconds=case_seconds, memory=memory)
        self.patched = Planner(patched, hash_seed=2, case_seconds=case_seconds, memory=memory)
        self._asked = 0

    def start(self) -> tuple[Hello, Hello]:
        """Starts both side by side and waits. Raises PlannerError naming every planner that did not start."""
        waiting = [self.unpatched.start(), self.patched.start()]
        hellos, errors = [], []
        for future in waiting:
            try:
                hellos.append(future.result())
            except PlannerError as error:
                errors.append(str(error))
        if errors:
            raise PlannerError("\n".join(errors))
        return hellos[0], hellos[1]

    def infos(self) -> tuple[PlannerInfo, PlannerInfo]:
        """Both planners, for reports."""
        return (
            describe_planner("unpatched", self.unpatched),
            describe_planner("patched", self.patched),
        )

    def close(self) -> None:
        """Ends both processes."""
        self.unpatched.close()
        self.patched.close()

    def submit(self, cases: Sequence[Case]) -> Pending:
        """Puts a batch to both planners without waiting."""
        questions: list[Question] = []
        for case in cases:
            self._asked += 1
            questions.append(Question(case, "all", self._asked % TWICE_EVERY == 0))
            if self.contract == "isolate" and is_mixed(case):
                questions.append(Question(sharded_part(case), "group"))
                questions.append(Question(replicated_part(case), "group"))
        return Pending(
            cases=tuple(cases), unpatched=self.unpatched.submit(questions), patched=self.patched.submit(questions)
        )

    def collect(self, pending: Pending) -> Iterator[Judged]:
        """Waits for a batch and judges each of its cases. Raises PlannerError."""
        unpatched, patched = iter(pending.unpatched.result()), iter(pending.patched.result())
        for case in pending.cases:
            apart = self.contract == "isolate" and is_mixed(case)
            yield self._judge(case, _take(unpatched, apart), _take(patched, apart))

    def ask(self, case: Case) -> Judged:
        """Asks both planners one case, and waits."""
        return next(self.collect(self.submit([case])))

    def _judge(self, case: Case, unpatched: _Answers, patched: _Answers) -> Judged:
        before = self._evidence(case, unpatched)
        after = msgspec.structs.replace(
            self._evidence(case, patched), counterpart=unpatched.main.outcome, counterpart_parts=unpatched.parts
        )
        outcomes = unpatched.main.outcome, patched.main.outcome
        alone = (unpatched.parts.sharded, unpatched.parts.replicated) if unpatched.parts is not None else ()
        in_parts = [
            breach
            for outcome in alone
            for breach in broken_laws(Evidence(case=case, contract=self.contract, outcome=outcome), REFUSALS)
        ]
        return Judged(
            case=case,
            unpatched=outcomes[0],
            patched=outcomes[1],
            verdict=judge(broken_laws(before), broken_laws(after), outcomes, in_parts),
            planner_seconds=unpatched.seconds + patched.seconds,
        )

    def _evidence(self, case: Case, answers: _Answers) -> Evidence:
        return Evidence(
            case=case, contract=self.contract, outcome=answers.main.outcome, changed=answers.main.changed,
            second=answers.main.second, parts=answers.parts,
        )  # fmt: skip


class _Answers(Struct, frozen=True):
    """One planner's answers about one case."""

    main: Answer
    parts: Parts | None
    seconds: float


def _take(answers: Iterator[Answer], apart: bool) -> _Answers:
    main = next(answers)
    if not apart:
        return _Answers(main, None, main.seconds)
    sharded, replicated = next(answers), next(answers)
    parts = Parts(sharded=sharded.outcome, replicated=replicated.outcome)
    return _Answers(main, parts, main.seconds + sharded.seconds + replicated.seconds)


def describe_planner(role: str, planner: Planner) -> PlannerInfo:
    """What a report says of a started planner."""
    hello = planner.hello()
    return PlannerInfo(
        role=role, address=planner.address, version=hello.version, revision=planner.launch.revision,
        python=hello.python, replication_field=hello.replication_field, hash_seed=planner.hash_seed,
        start_seconds=round(hello.import_seconds, 2),
    )  # fmt: skip
