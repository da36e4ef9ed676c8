"""Lanes on the machines of a Ray cluster.

Each lane is an actor of one core: it resolves the planners' addresses on its own machine, keeps them warm, and
exchanges the same messages as a lane process, packed as bytes, so that nothing of ours is pickled. A machine that goes
away takes its lanes with it; their batches are drawn again elsewhere, from the seed and the numbers.
"""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fuzz.campaign.batches import Result, Task
from fuzz.campaign.crew import MakeLane
from fuzz.campaign.journal import Asking
from fuzz.campaign.lane import Failed, Lane, Ready, or_failed
from fuzz.campaign.process import LaneGone, LaneLike
from fuzz.campaign.start import Means, open_launches, setup_of
from fuzz.planners.process import LIBRARY, PlannerError
from fuzz.planners.trees import read_config

ANSWER_SECONDS = 1800.0
"""A batch of hanging cases takes eight minutes; a machine that is silent for longer is gone."""


class Posting(Struct, frozen=True, kw_only=True):
    """What an actor makes its lane of; the addresses are resolved where it runs."""

    lane: int
    asking: Asking
    canary: str
    means: Means


_POSTING = msgspec.msgpack.Decoder(Posting)
_TASKS = msgspec.msgpack.Decoder(Task)
_RESULTS = msgspec.msgpack.Decoder(Result | Failed)
_GREETINGS = msgspec.msgpack.Decoder(Ready | Failed)


class LaneActor:
    """The actor's side: a lane behind two methods that take and give bytes."""

    def __init__(self) -> None:
        self._lane: Lane | None = None

    def start(self, posting: bytes) -> bytes:
        """Resolves the planners and starts them."""
        return msgspec.msgpack.encode(or_failed(self._begin, _POSTING.decode(posting)))

    def _begin(self, asked: Posting) -> Ready:
        launches = open_launches(asked.asking, read_config(Path.cwd()))
        self._lane = Lane(setup_of(asked.lane, asked.asking, launches, asked.canary, asked.means, ""))
        return self._lane.start()

    def work(self, task: bytes) -> bytes:
        """Does one task."""
        assert self._lane is not None
        return msgspec.msgpack.encode(or_failed(self._lane.do, _TASKS.decode(task)))


class ClusterLane:
    """The engine's side of one actor."""

    def __init__(self, ray: Any, posting: Posting) -> None:
        self._ray = ray
        self._posting = posting
        self._actor: Any = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"lane {posting.lane}")

    def start(self) -> Future[Ready]:
        """Asks the cluster for a core and starts the lane there."""
        return self._thread.submit(self._start)

    def submit(self, task: Task) -> Future[Result]:
        """Queues a task."""
        return self._thread.submit(self._do, task)

    def close(self) -> None:
        """Ends the actor."""
        if self._actor is not None:
            self._ray.kill(self._actor)
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> Ready:
        remote = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(LaneActor)
        # The actor imports this checkout by its path, or the package installed on its machine.
        self._actor = remote.options(runtime_env={"env_vars": {"PYTHONPATH": _library_path()}}).remote()
        greeting = _GREETINGS.decode(self._answer(self._actor.start.remote(msgspec.msgpack.encode(self._posting))))
        if isinstance(greeting, Failed):
            raise PlannerError(greeting.error)
        return greeting

    def _do(self, task: Task) -> Result:
        result = _RESULTS.decode(self._answer(self._actor.work.remote(msgspec.msgpack.encode(task))))
        if isinstance(result, Failed):
            raise PlannerError(result.error)
        return result

    def _answer(self, reference: Any) -> bytes:
        try:
            answer = self._ray.get(reference, timeout=ANSWER_SECONDS)
        except self._ray.exceptions.RayError as error:
            raise LaneGone(f"{type(error).__name__}: its machine or its process ended") from None
        assert isinstance(answer, bytes)
        return answer


def _library_path() -> str:
    return os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")])


def cluster_lanes(address: str, asking: Asking, canary: str, means: Means) -> MakeLane:
    """Lanes on the cluster at ``address``.

    Raises:
        PlannerError: Ray is not installed, or there is no cluster at that address.
    """
    try:
        import ray
    except ImportError:
        raise PlannerError(f"--ray needs Ray: {sys.executable} -m pip install 'kvfuzz[ray]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise PlannerError(f"--ray {address}: no cluster there ({error})") from None

    def make_lane(number: int) -> LaneLike:
        return ClusterLane(ray, Posting(lane=number, asking=asking, canary=canary, means=means))

    return make_lane
