"""A lane in a process of its own: the judge of one lane never waits for another's.

Run as ``python -m fuzz.campaign``: framed messages on standard input, answers on standard output (what a planner
prints goes nowhere near it). The lane ends when its input does, and its planners with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Protocol

import msgspec

from fuzz.campaign.batches import Result, Task
from fuzz.campaign.lane import Failed, Ready, Setup
from fuzz.planners.process import LIBRARY, PlannerError
from fuzz.planners.protocol import HEADER_BYTES, body_length, pack

Message = Setup | Task
Reply = Ready | Result | Failed
_REPLIES = msgspec.msgpack.Decoder(Reply)


class LaneGone(Exception):
    """The lane's process or machine is gone; its work can be done by another."""


class LaneLike(Protocol):
    """What the engine knows of a lane, wherever it runs. Futures raise LaneGone and PlannerError."""

    def start(self) -> Future[Ready]:
        """Starts the lane's planners."""

    def submit(self, task: Task) -> Future[Result]:
        """Queues a task; tasks are done in order."""

    def close(self) -> None:
        """Ends the lane at once."""


class LaneProcess:
    """A lane on this machine."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"lane {setup.lane}")
        self._closed = False

    def start(self) -> Future[Ready]:
        """Starts the process and its planners."""
        return self._thread.submit(self._start)

    def submit(self, task: Task) -> Future[Result]:
        """Queues a task."""
        return self._thread.submit(self._do, task)

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """Ends the process; tasks in the queue are dropped."""
        self._closed = True
        self._kill()
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> Ready:
        if self._closed:
            raise LaneGone("closed")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.campaign"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the engine, which ends a run in order
        )
        reply = self._exchange(self._setup)
        if not isinstance(reply, Ready):
            raise LaneGone(f"answered its setup with {type(reply).__name__}")
        return reply

    def _do(self, task: Task) -> Result:
        reply = self._exchange(task)
        if not isinstance(reply, Result):
            raise LaneGone(f"answered {type(task).__name__} with {type(reply).__name__}")
        return reply

    def _exchange(self, message: Message) -> Ready | Result:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise LaneGone("not started")
        try:
            process.stdin.write(pack(message))
            process.stdin.flush()
            reply = _REPLIES.decode(receive(process.stdout))
        except (OSError, EOFError, ValueError) as error:
            self._kill()
            raise LaneGone(f"its process ended ({error or type(error).__name__})") from None
        if isinstance(reply, Failed):
            raise PlannerError(reply.error)
        return reply

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def receive(stream: IO[bytes]) -> bytes:
    """The body of the next framed message. Raises EOFError."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        raise EOFError("end of its output")
    body = stream.read(body_length(header))
    if len(body) < body_length(header):
        raise EOFError("a cut-off answer")
    return body
