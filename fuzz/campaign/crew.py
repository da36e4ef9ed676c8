"""The *crew*: the lanes of a run, what each is working on, and another lane where one was lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from msgspec import Struct

from fuzz.campaign.batches import Batch, Finish, Recheck, Result, Sample, Task
from fuzz.campaign.events import LaneLost
from fuzz.campaign.lane import Ready
from fuzz.campaign.process import LaneGone, LaneLike
from fuzz.planners.process import PlannerError

QUEUED = 2
"""Batches at a lane: one being asked and one waiting, so that a lane never waits for the engine."""

LOSSES = 8
"""Lanes lost before the run gives up: something here kills processes faster than they work."""

POLL_SECONDS = 0.2

MakeLane = Callable[[int], LaneLike]
"""A lane by its number. Lane 0 has the canary."""


class Delivered(Struct, frozen=True):
    """What a lane has done: the task, its result, and the lane's number."""

    task: Task
    result: Result
    lane: int


class _Seat:
    """A place for a lane."""

    def __init__(self, number: int, lane: LaneLike) -> None:
        self.number = number
        self.lane = lane
        self.starting: Future[Ready] | None = lane.start()
        self.tasks: dict[Future[Result], Task] = {}

    def give(self, task: Task) -> None:
        self.tasks[self.lane.submit(task)] = task


class Crew:
    """The lanes of one run. ``jobs`` of them take batches; one more only rechecks where ``jobs`` is one: a lane
    cannot recheck itself, its hash seeds are its own.
    """

    def __init__(self, make_lane: MakeLane, jobs: int, *, rechecks: bool) -> None:
        self._make_lane = make_lane
        self._jobs = jobs
        self.lost = 0
        self._again: deque[Batch] = deque()
        self._samples: deque[tuple[int, tuple[Sample, ...]]] = deque()
        self._seats = [_Seat(n, make_lane(n)) for n in range(jobs + (1 if rechecks and jobs == 1 else 0))]

    def close(self) -> None:
        """Ends all lanes at once."""
        for seat in self._seats:
            seat.lane.close()

    def first(self) -> Ready:
        """Waits for lane 0. Raises PlannerError."""
        seat = self._seats[0]
        assert seat.starting is not None
        ready = seat.starting.result()
        seat.starting = None
        return ready

    @property
    def busy(self) -> bool:
        """Whether a batch or another task is at a lane or waits for one."""
        return bool(self._again) or any(seat.tasks for seat in self._seats)

    @property
    def rechecks_wait(self) -> bool:
        """Whether samples wait for a lane other than the one that judged them."""
        return bool(self._samples) and len(self._seats) > 1

    def ask_again(self, batches: list[Batch]) -> None:
        """Queues batches that somebody else had; they go before new ones."""
        self._again.extend(sorted(batches, key=lambda batch: batch.number))

    def recheck(self, origin: int, samples: tuple[Sample, ...]) -> None:
        """Queues samples for a lane other than ``origin``."""
        self._samples.append((origin, samples))

    def finish(self) -> None:
        """Asks lane 0 what is left to do."""
        self._seats[0].give(Finish())

    def fill(self, next_batch: Callable[[], Batch | None]) -> None:
        """Gives work to every lane with room: batches to do again first, then new ones."""
        for seat in sorted(self._seats[: self._jobs], key=lambda one: len(one.tasks)):
            while seat.starting is None and len(seat.tasks) < QUEUED:
                batch = self._again.popleft() if self._again else next_batch()
                if batch is None:
                    break
                seat.give(batch)
        for _ in range(len(self._samples)):
            origin, samples = self._samples.popleft()
            others = [seat for seat in self._seats if seat.number != origin and seat.starting is None]
            if others:
                min(others, key=lambda one: len(one.tasks)).give(Recheck(samples=samples))
            else:
                self._samples.append((origin, samples))

    def delivered(self) -> Iterator[Delivered | LaneLost]:
        """Waits a moment for lanes; gives what they have done and which were lost. Raises PlannerError."""
        waiting: list[Future[Any]] = [future for seat in self._seats for future in seat.tasks]
        waiting += [seat.starting for seat in self._seats if seat.starting is not None]
        wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for seat in self._seats:
            try:
                if seat.starting is not None and seat.starting.done():
                    seat.starting.result()
                    seat.starting = None
                for future in [one for one in seat.tasks if one.done()]:
                    result = future.result()
                    yield Delivered(seat.tasks.pop(future), result, seat.number)
            except LaneGone as error:
                yield self._replaced(seat, str(error))

    def _replaced(self, seat: _Seat, reason: str) -> LaneLost:
        """Seats a new lane where one was lost; what the old one had is done again. Raises PlannerError."""
        self.lost += 1
        if self.lost > LOSSES:
            raise PlannerError(f"{self.lost} lanes were lost, the last one because {reason}")
        tasks = list(seat.tasks.values())
        batches = [task for task in tasks if isinstance(task, Batch)]
        seat.lane.close()
        seat.lane = self._make_lane(seat.number)
        seat.starting, seat.tasks = seat.lane.start(), {}
        self.ask_again(batches)
        self._samples.extend((seat.number, task.samples) for task in tasks if isinstance(task, Recheck))
        if any(isinstance(task, Finish) for task in tasks):
            self.finish()  # queued behind its start
        return LaneLost(lane=seat.number, cases=sum(batch.count for batch in batches), reason=reason)
