"""Runs a campaign: gives batches to lanes, takes results in order, and tells what happens, one event a step.

The corpus is asked first, so that every run meets the cases that once mattered, for half of the time if there is a
limit; then cases are drawn from the seed, one in four a mutant of a case that reached something new. Results are
absorbed in the order of their numbers whatever the order in which lanes deliver them, and the parents of a batch come
from batches ``LAG`` before it: so the cases of a run depend on its seed, its planners and the number of lanes, and not
on which lane was faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from msgspec import Struct, structs

from fuzz.campaign.batches import BATCH, Batch, Result, case_in
from fuzz.campaign.crew import Crew, Delivered, MakeLane
from fuzz.campaign.events import CanaryCaught, Event, Finished, Progressed, Report, Resumed, Started
from fuzz.campaign.frontier import Frontier
from fuzz.campaign.journal import FORMAT, Asking, Journal, State, forget_old_runs
from fuzz.campaign.lane import Ready
from fuzz.campaign.ledger import Asked, Ledger
from fuzz.known import KnownFindings, label
from fuzz.planners.address import names_release
from fuzz.store import Store
from fuzz.strategies import Shape, vocabulary_of
from oracles.case import Case

LAG = 4
"""Batches per lane between reaching something and mutating it."""

CORPUS_SHARE = 0.5
"""The part of a run's time that its corpus may take: the rest is for cases that nobody has seen."""

SAVE_SECONDS = 1.0


class Order(Struct, frozen=True, kw_only=True):
    """A campaign to run: what is asked, the cases of the corpus, the canary's name, and how to make a lane."""

    asking: Asking
    corpus: tuple[Case, ...]
    canary: str
    make_lane: MakeLane


def never() -> bool:
    """Not interrupted."""
    return False


def run(
    order: Order,
    store: Store,
    known: KnownFindings,
    journal: Journal,
    *,
    state: State | None = None,
    interrupted: Callable[[], bool] = never,
) -> Iterator[Event]:
    """Runs a campaign, or goes on with one from its ``state``. Ends early, in order, once ``interrupted``.

    Raises:
        PlannerError: a planner cannot be started or restarted, or lanes are lost again and again.
    """
    crew = Crew(order.make_lane, order.asking.jobs, rechecks=order.asking.twins)
    try:
        yield from _Run(order, store, known, journal, crew, crew.first(), state, interrupted).events()
    finally:
        crew.close()


class _Run:
    """One run, from its first event to its last."""

    def __init__(
        self, order: Order, store: Store, known: KnownFindings, journal: Journal, crew: Crew, ready: Ready,
        state: State | None, interrupted: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._order, self._asking, self._store, self._known = order, order.asking, store, known
        self._journal, self._crew, self._ready, self._interrupted = journal, crew, ready, interrupted
        self._shape = Shape(vocabulary=vocabulary_of(*ready.hellos))
        asking = order.asking
        asked = Asked(contract=asking.contract, unpatched=asking.unpatched, patched=asking.patched)
        self._ledger = Ledger(asked, store, known, state.books if state is not None else None)
        self._state = state
        self._corpus = [order.corpus[at : at + BATCH] for at in range(0, len(order.corpus), BATCH)]
        if state is not None:
            self._corpus = self._corpus[: state.corpus_batches]
        self._frontier = self._first_frontier()
        self._spent = state.seconds if state is not None else 0.0
        self._canary_law = state.canary_law if state is not None else ""
        self._canary_cases = 0
        self._absorbed = state.absorbed if state is not None else 0
        self._next = self._absorbed
        self._arrived: dict[int, tuple[Batch, Result, int]] = {}
        # -1 stands for the beginning, which the first batches choose from.
        self._parents_at = {-1: self._frontier.size, **(state.parents_at if state is not None else {})}
        self._finishing = False
        self._begun = time.monotonic()
        self._saved = 0.0

    def _first_frontier(self) -> Frontier:
        """What the stored state had reached, or the corpus: both are parents from the first batch on."""
        if self._state is None:
            return Frontier([case for case in self._order.corpus if self._shape.vocabulary.can_ask(case)])
        grown = (self._store.load_grown(identity) for identity in self._state.reached.pool)
        return Frontier([case for case in grown if case is not None], self._state.reached)

    def events(self) -> Iterator[Event]:
        """Runs to the end."""
        asking = self._asking
        yield Started(
            planners=self._ready.planners, contract=asking.contract, seed=asking.seed, jobs=asking.jobs,
            run=self._journal.run,
        )  # fmt: skip
        if self._state is not None:
            yield self._resumed()
        self._save(finished=False)
        while self._crew.busy or self._more() or self._begin_to_finish():
            self._leave_corpus_in_time()
            self._crew.fill(self._next_batch)
            for event in self._crew.delivered():
                if isinstance(event, Delivered):
                    yield from self._take(event)
                else:
                    yield event
        self._save(finished=not self._interrupted())
        forget_old_runs(self._store)
        yield Finished(report=self._report())

    def _resumed(self) -> Resumed:
        for witness in self._journal.told():
            self._ledger.readopt(witness)
        in_flight = [batch for batch in self._journal.in_flight() if batch.number >= self._absorbed]
        self._crew.ask_again(in_flight)
        self._next = max([self._absorbed, *(batch.number + 1 for batch in in_flight)])
        cases = sum(batch.count for batch in in_flight)
        return Resumed(cases=self._ledger.cases, findings=self._ledger.distinct, in_flight=cases)

    # Giving out

    def _more(self) -> bool:
        """Whether there is a batch that was not given out yet."""
        asking = self._asking
        if self._interrupted() or self._finishing:
            return False
        if self._next < len(self._corpus):
            return True
        if asking.seconds is not None and self._elapsed() >= asking.seconds:
            return False
        return asking.cases is None or (self._next - len(self._corpus)) * BATCH < asking.cases

    def _leave_corpus_in_time(self) -> None:
        """Gives out no more of the corpus once it had its share of the time."""
        seconds = self._asking.seconds
        if seconds is None or self._next >= len(self._corpus) or self._elapsed() < CORPUS_SHARE * seconds:
            return
        if not self._interrupted():
            self._corpus = self._corpus[: self._next]
            self._save(finished=False)  # before a batch with a later number is drawn: a resumed run counts alike

    def _next_batch(self) -> Batch | None:
        if not self._more() or self._next >= self._absorbed + LAG * self._asking.jobs:
            return None
        batch = self._made(self._next)
        self._journal.open(batch)
        self._next += 1
        return batch

    def _made(self, number: int) -> Batch:
        if number < len(self._corpus):
            given = self._corpus[number]
            return Batch(number=number, first=number * BATCH, count=len(given), given=given, whole=True)
        asking = self._asking
        first = (number - len(self._corpus)) * BATCH
        count = BATCH if asking.cases is None else min(BATCH, asking.cases - first)
        at_first, absorbed = self._parents_at[-1], number - LAG * asking.jobs
        among = at_first if absorbed < 0 else self._parents_at.pop(absorbed, at_first)
        parents = self._frontier.parents(asking.seed, number, among)
        return Batch(number=number, first=first, count=count, seed=asking.seed, parents=parents)

    def _begin_to_finish(self) -> bool:
        """With nothing left to give out: whether there is something to wait for all the same."""
        if self._interrupted():
            return False
        if self._crew.rechecks_wait:
            return True
        if self._finishing or not self._order.canary or self._canary_law:
            return False
        self._finishing = True
        self._crew.finish()
        return True

    # Taking in

    def _take(self, delivered: Delivered) -> Iterator[Event]:
        if not isinstance(delivered.task, Batch):
            yield from self._note(delivered.result)
            return
        self._arrived[delivered.task.number] = delivered.task, delivered.result, delivered.lane
        while self._absorbed in self._arrived:
            yield from self._absorb(*self._arrived.pop(self._absorbed))

    def _absorb(self, batch: Batch, result: Result, lane: int) -> Iterator[Event]:
        yield from self._note(result)
        for at in self._frontier.absorb(result):
            case = case_in(batch, at, self._shape)
            self._store.keep_grown(case)
            if self._shape.vocabulary.can_ask(case):
                self._frontier.adopt(case)
        self._parents_at[batch.number] = self._frontier.size
        if result.samples:
            self._crew.recheck(lane, result.samples)
        self._absorbed += 1
        ledger, frontier = self._ledger, self._frontier
        yield Progressed(
            cases=ledger.cases, seconds=self._elapsed(), verdicts=dict(ledger.verdicts),
            planner_seconds=ledger.planner_seconds, distinct=ledger.distinct, pairs=frontier.pairs,
            branches=frontier.branches, novelty=frontier.novelty,
        )  # fmt: skip
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save(finished=False)

    def _note(self, result: Result) -> Iterator[Event]:
        for found in self._ledger.note(result):
            self._journal.tell(found.witness)
            yield found
        self._canary_cases += result.canary_cases
        if result.canary_law and not self._canary_law:
            self._canary_law = result.canary_law
            yield CanaryCaught(name=self._order.canary, law=result.canary_law, cases=self._canary_cases)

    # Telling

    def _elapsed(self) -> float:
        return self._spent + time.monotonic() - self._begun

    def _save(self, *, finished: bool) -> None:
        self._saved = time.monotonic()
        state = State(
            format=FORMAT, run=self._journal.run, asking=self._asking, seconds=self._elapsed(),
            absorbed=self._absorbed, books=self._ledger.books(), reached=self._frontier.reached(),
            canary_law=self._canary_law, finished=finished, parents_at=self._parents_at,
            corpus_batches=len(self._corpus),
        )  # fmt: skip
        self._journal.save(state)

    def _report(self) -> Report:
        ledger, asking, frontier = self._ledger, self._asking, self._frontier
        seconds = self._elapsed()
        witnesses = ledger.witnesses()
        met = {witness.fingerprint for witness in witnesses}
        of_corpus = sum(map(len, self._corpus))
        left_out = len(self._order.corpus) - of_corpus
        all_asked = asking.corpus and self._absorbed >= len(self._corpus) and not left_out
        return Report(
            run=self._journal.run,
            contract=asking.contract,
            seed=asking.seed,
            jobs=asking.jobs,
            cases=ledger.cases,
            corpus_cases=min(ledger.cases, of_corpus),
            corpus_left_out=left_out,
            mutated=ledger.mutated,
            seconds=round(seconds, 3),
            cases_per_second=round(ledger.cases / seconds, 2) if seconds > 0 else 0.0,
            planner_seconds=round(ledger.planner_seconds, 3),
            verdicts=dict(ledger.verdicts),
            inconclusive=dict(ledger.reasons),
            planned_under_other_hash_seeds=ledger.compared,
            pairs=frontier.pairs,
            branches=frontier.branches,
            novelty=round(frontier.novelty, 6),
            kept_cases=frontier.size,
            canary=self._order.canary,
            canary_caught_by=self._canary_law,
            lanes_lost=self._crew.lost,
            interrupted=self._interrupted(),
            timed=asking.seconds is not None,
            gate=asking.gate,
            findings=tuple(structs.replace(witness, number=at) for at, witness in enumerate(witnesses)),
            known=self._known.met(met),
            unmatched=self._known.unmatched(met, self._under()) if all_asked else (),
            planners=self._ready.planners,
        )

    def _under(self) -> list[str]:
        """How known.toml names what was asked here. It speaks of one release, as it is and with the built-in overlay:
        what a branch or an overlay of one's own no longer shows is not gone from any release.
        """
        unpatched, patched = self._ready.planners
        if unpatched.version != patched.version or not all(map(names_release, (unpatched.address, patched.address))):
            return []
        asking = self._asking
        return [label(unpatched.version, asking.contract, serving=one) for one in {False, asking.requests}]
