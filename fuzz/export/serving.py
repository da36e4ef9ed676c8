"""What a script needs to serve a workload again: the least workload that shows the finding, and what was done in it.

A workload is drawn for a case and has a hundred steps. Here it loses steps, arrivals and all that is not needed while
the planner at fault shows the same violation; then it is served once more and traced (``fuzz/planners/trace``).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, structs

from fuzz.planners.process import Planner, Question
from fuzz.planners.trace import CONTENT_EVENTS, NUMBERS, Event, Spot, Trace
from fuzz.planners.workload import Arrival, Served, Turn, Violation, Workload
from fuzz.replay.requests.asking import workload_for
from oracles.case import Case
from oracles.compare import Finding

MOST_ASKED = 400
"""Workloads that are tried for a smaller one: some ten seconds."""

CONTENT_SPOTS = frozenset({"content", "state", "ring"})


class ServedAgain(Struct, frozen=True, kw_only=True):
    """What a script does and where it looks. ``events`` are none for a check of a pool's size; ``error`` is the type of
    the exception that the fault is, if it is one.
    """

    trace: Trace
    events: tuple[Event, ...]
    spot: Spot
    message: str
    error: str

    @property
    def keeps_contents(self) -> bool:
        """Whether the check looks at what blocks hold, so that the script must keep book of it."""
        return self.spot.name in CONTENT_SPOTS


class NoTrace(Exception):
    """A finding of served requests that no script can show; the message says why."""


def served_again(planner: Planner, case: Case, finding: Finding, workload: Workload | None = None) -> ServedAgain:
    """The least workload on which ``planner`` shows ``finding``, as it is served. It is sought within ``workload``;
    by default that is the one that a campaign draws for the case.

    Raises:
        NoTrace: it is not shown when asked again.
        PlannerError: the planner cannot be started.
    """
    search = _Search(planner, case, finding)
    workload = search.least(workload or workload_for(case))
    served = search.asked(structs.replace(workload, traced=True))
    violation = _shown(served, finding)
    if served is None or served.trace is None or violation is None or violation.spot is None:
        raise NoTrace("serving its requests once more does not show it")
    if len(violation.spot.args) < NUMBERS[violation.spot.name]:
        raise NoTrace("its planner does not say where the check looked")  # a worker's words are data
    events = served.trace.events[: violation.at]
    if violation.spot.name not in CONTENT_SPOTS:
        events = tuple(event for event in events if event.name not in CONTENT_EVENTS)
    return ServedAgain(
        trace=served.trace,
        events=events,
        spot=violation.spot,
        message=violation.message,
        error=violation.error,
    )


def _shown(served: Served | None, finding: Finding) -> Violation | None:
    """The violation that is ``finding``, if there is one."""
    wanted = finding.law, finding.first_difference, finding.error, finding.frame
    found = served.violations if served is not None else ()
    return next((one for one in found if (one.check, one.path, one.error, one.frame) == wanted), None)


class _Search:
    """Asks one planner about workloads of one case."""

    def __init__(self, planner: Planner, case: Case, finding: Finding) -> None:
        self.planner, self.case, self.finding = planner, case, finding
        self.left = MOST_ASKED

    def asked(self, workload: Workload) -> Served | None:
        """What comes of a workload; None where the planner does not get as far."""
        return self.planner.ask([Question(self.case, depth="serve", workload=workload)])[0].served

    def shows(self, workload: Workload) -> Violation | None:
        """The violation, if ``workload`` shows the finding and there is time left to ask."""
        if not self.left:
            return None
        self.left -= 1
        return _shown(self.asked(workload), self.finding)

    def least(self, workload: Workload) -> Workload:
        """A workload that shows the finding and that no single change makes smaller; ``workload`` if it does not."""
        # A script that tries a pool has its chunks written down, and asks no rule for them.
        for pool in workload.pools if self.finding.first_difference != "serve.chunk" else ():
            alone = Workload(pools=(pool,))
            if self.shows(alone):
                return alone
        without_pools = structs.replace(workload, pools=())
        first = self.shows(without_pools)
        if first is None:
            return workload
        last = first.turn + 1 if first.turn >= 0 else len(workload.turns)
        best = structs.replace(without_pools, turns=workload.turns[:last])
        if not self.shows(best):
            return without_pools
        before = None
        while best != before:
            before = best
            best = self.with_fewer_turns(best)
            best = self.better(best, structs.replace(best, lag=0))
            best = self.better(best, structs.replace(best, drafts=False))
            best = self.with_simpler_turns(best)
        return best

    def better(self, best: Workload, other: Workload) -> Workload:
        """``other`` if it differs and shows the finding too."""
        return other if other != best and self.shows(other) else best

    def with_fewer_turns(self, best: Workload) -> Workload:
        """Leaves out runs of steps, long ones first."""
        size = max(1, len(best.turns) // 2)
        while size:
            start = 0
            while start < len(best.turns):
                turns = best.turns[:start] + best.turns[start + size :]
                shorter = self.better(best, structs.replace(best, turns=turns))
                start += 0 if shorter is not best else size
                best = shorter
            size //= 2
        return best

    def with_simpler_turns(self, best: Workload) -> Workload:
        """Makes every step as plain as it can be."""
        for at in range(len(best.turns)):
            change = 0
            while change < len(plainer := list(_simpler(best.turns[at]))):
                turns = (*best.turns[:at], plainer[change], *best.turns[at + 1 :])
                best = self.better(best, structs.replace(best, turns=turns))
                change += 1
        return best


def _simpler(turn: Turn) -> Iterator[Turn]:
    """``turn`` with one thing less."""
    for at in range(len(turn.arrivals)):
        yield structs.replace(turn, arrivals=turn.arrivals[:at] + turn.arrivals[at + 1 :])
    yield structs.replace(turn, aborts=())
    yield structs.replace(turn, preempts=())
    yield structs.replace(turn, budget=0)
    yield structs.replace(turn, accepted=0)
    for at, arrival in enumerate(turn.arrivals):
        for plainer in (
            structs.replace(arrival, text=0), structs.replace(arrival, output=1),
            structs.replace(arrival, tokens=min(1, arrival.tokens)), structs.replace(arrival, own=0),
            structs.replace(arrival, shared=16), Arrival(shared=arrival.shared),
        ):  # fmt: skip
            yield structs.replace(turn, arrivals=(*turn.arrivals[:at], plainer, *turn.arrivals[at + 1 :]))
