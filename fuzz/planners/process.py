"""Runs a planner in its own process and turns whatever happens there into an outcome.

One warm process serves thousands of cases. A case that outlives its deadline, kills the process, fills its
memory or makes it send rubbish becomes the outcome of *that* case; a fresh process serves the next one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import msgspec

from fuzz.planners.protocol import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    OUT_OF_MEMORY_EXIT,
    PROTOCOL,
    Answer,
    Ask,
    Depth,
    Failed,
    Hello,
    body_length,
    pack,
)
from fuzz.planners.trees import Launch
from fuzz.planners.workload import Workload
from oracles.case import Case
from oracles.plan import Died, Outcome, TimedOut

START_SECONDS = 180.0
"""Importing vLLM takes 5 to 13 s on a warm disk and can take minutes on a cold or shared one."""

CASE_SECONDS = 20.0
"""A thousand-layer case takes about 2 s."""

MEMORY_BYTES = 2 * 2**30
"""Growth allowed beyond the imported tree; planning itself needs a few MiB."""

RECYCLE_AFTER = 50_000
"""Answers after which a fresh process takes over: what vLLM leaks never grows large, and 6 s of start are little."""

OUTSIDERS = frozenset({"SIGKILL", "SIGTERM", "SIGHUP"})
"""Signals that somebody sent. A planner that dies of one is asked again before its death counts as an outcome."""

STARTS = 10
"""How often a planner is started that somebody kills while it starts: a killer that strikes every few seconds meets
most starts. One that ends by itself would do so again, and is not started twice."""

TAIL_BYTES = 1 << 16
"""Kept of what a process prints; the stacks of a crash take a few KiB."""

LIBRARY = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).resolve().with_name("worker.py")
_ANSWER = msgspec.msgpack.Decoder(Answer)
_FIRST = msgspec.msgpack.Decoder(Hello | Failed)


class PlannerError(Exception):
    """A planner that cannot be started: an infrastructure failure, never a verdict."""


class UnusableEntry(PlannerError):
    """A field of the planner's entry in kvfuzz.toml asks for what its tree has not: a usage error."""


class KilledAtStart(PlannerError):
    """Somebody killed the process before it could greet."""


class Question(msgspec.Struct, frozen=True):
    """A case and how to plan it; ``config`` is its model's ``config.json`` where that is at hand."""

    case: Case
    depth: Depth = "all"
    twice: bool = False
    workload: Workload | None = None
    config: str = ""


class _Broken(Exception):
    """The worker's channel ended or carried rubbish; ``outcome`` says how."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class Worker:
    """One live process."""

    def __init__(self, launch: Launch, *, hash_seed: int, memory: int) -> None:
        ask_read, ask_write = os.pipe()
        answer_read, answer_write = os.pipe()
        command = [
            *(launch.python, str(WORKER), "--library", str(LIBRARY)),
            *("--ask", str(ask_read), "--answer", str(answer_write), "--memory", str(memory)),
            *(part for overlay in launch.overlays for part in ("--overlay", overlay)),
            *(("--builder", launch.builder) if launch.builder else ()),
        ]
        try:
            self._process = subprocess.Popen(
                command,
                env=launch.environment(hash_seed),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(ask_read, answer_write),
                start_new_session=True,  # so that what it starts dies with it
                cwd=launch.folder,
            )
        except OSError as error:
            for fd in (ask_write, answer_read):
                os.close(fd)
            raise PlannerError(f"{launch.address}: cannot run {launch.python}: {error}") from error
        finally:
            os.close(ask_read)
            os.close(answer_write)
        self._launch = launch
        self._write_fd, self._read_fd = ask_write, answer_read
        os.set_blocking(self._write_fd, False)
        os.set_blocking(self._read_fd, False)
        self._buffer = bytearray()
        self._tail = bytearray()
        self._drain = threading.Thread(target=self._drain_output, daemon=True)
        self._drain.start()

    def _drain_output(self) -> None:
        # Read, or a chatty planner would block on a full pipe; keep the end only.
        assert self._process.stdout is not None
        while chunk := os.read(self._process.stdout.fileno(), 4096):
            self._tail += chunk
            del self._tail[:-TAIL_BYTES]

    def tail(self) -> str:
        """The end of what the process printed."""
        text = self._tail.decode(errors="replace")
        return "\n".join(text.splitlines()[-60:])[-4000:]

    def hello(self) -> Hello:
        """Waits for the first message. Raises PlannerError when the tree cannot be used, KilledAtStart when the process
        was ended by another one, UnusableEntry when its entry is at fault.
        """
        try:
            body = self._receive(time.monotonic() + START_SECONDS, START_SECONDS)
            first = _FIRST.decode(body)
        except (_Broken, msgspec.DecodeError) as error:
            self.kill()
            why = describe(error.outcome, " while starting") if isinstance(error, _Broken) else "sent no greeting"
            killed = isinstance(error, _Broken) and _from_outside(error.outcome)
            kind = KilledAtStart if killed else PlannerError
            raise kind(f"{self._launch.address}: the worker {why}\n{self.tail()}".rstrip()) from error
        if isinstance(first, Failed):
            self.kill()
            if first.field:
                raise UnusableEntry(f"planner {self._launch.address!r}: {first.field}: {first.error}")
            raise PlannerError(f"{self._launch.address}: the tree cannot be used: {first.error}\n{self.tail()}")
        if first.protocol != PROTOCOL:
            self.kill()
            raise PlannerError(f"{self._launch.address}: speaks protocol {first.protocol}, expected {PROTOCOL}")
        return first

    def converse(self, asks: Sequence[Ask], seconds: float) -> Iterator[Answer]:
        """Answers in order. Raises _Broken for the first ask that gets none."""
        out = memoryview(b"".join(pack(ask) for ask in asks))
        for ask in asks:
            deadline = time.monotonic() + seconds
            while (body := self._next_body()) is None:
                out = self._exchange(out, deadline, seconds)
            try:
                answer = _ANSWER.decode(body)
            except msgspec.DecodeError:
                raise _Broken(Died(cause="bad reply", stderr_tail=self._end_of_output())) from None
            if answer.number != ask.number:
                raise _Broken(Died(cause="bad reply", stderr_tail=self._end_of_output()))
            yield answer

    def _receive(self, deadline: float, seconds: float) -> bytes:
        empty = memoryview(b"")
        while (body := self._next_body()) is None:
            self._exchange(empty, deadline, seconds)
        return body

    def _next_body(self) -> bytes | None:
        if len(self._buffer) < HEADER_BYTES:
            return None
        length = body_length(bytes(self._buffer[:HEADER_BYTES]))
        if length > MAX_MESSAGE_BYTES:
            raise _Broken(Died(cause="bad reply", stderr_tail=self._end_of_output()))
        if len(self._buffer) < HEADER_BYTES + length:
            return None
        body = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + length])
        del self._buffer[: HEADER_BYTES + length]
        return body

    def _exchange(self, out: memoryview, deadline: float, seconds: float) -> memoryview:
        """Waits until the pipe can be read or written, and does so once; what is still to write is returned.

        Both directions at once: a worker that blocks on a long answer would never read the next ask.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            self.kill()
            raise _Broken(TimedOut(seconds=seconds, stderr_tail=self.tail()))
        readable, writable, _ = select.select([self._read_fd], [self._write_fd] if out else [], [], min(left, 1.0))
        if readable:
            chunk = os.read(self._read_fd, 1 << 18)
            if not chunk:
                raise _Broken(self._ended())
            self._buffer += chunk
        if writable:
            try:
                out = out[os.write(self._write_fd, out[: 1 << 16]) :]
            except BrokenPipeError:
                raise _Broken(self._ended()) from None
        return out

    def _ended(self) -> Outcome:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            cause = "closed its channel"
        else:
            if code == OUT_OF_MEMORY_EXIT:
                cause = "out of memory"
            elif code < 0:
                with contextlib.suppress(ValueError):
                    cause = signal.Signals(-code).name
                    return Died(cause=cause, stderr_tail=self._end_of_output())
                cause = f"signal {-code}"
            else:
                cause = f"exit {code}"
        return Died(cause=cause, stderr_tail=self._end_of_output())

    def _end_of_output(self) -> str:
        self.kill()
        self._drain.join(timeout=1)
        return self.tail()

    def cpu_seconds(self) -> float:
        """User and system time of the process so far; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Ends the process and everything it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        for name in ("_write_fd", "_read_fd"):
            fd = getattr(self, name)
            if fd >= 0:
                os.close(fd)
                setattr(self, name, -1)


def _from_outside(outcome: Outcome) -> bool:
    return isinstance(outcome, Died) and outcome.cause in OUTSIDERS


def describe(outcome: Outcome, when: str = "") -> str:
    """A half-sentence for an outcome that is no answer."""
    if isinstance(outcome, TimedOut):
        return f"gave no answer within {outcome.seconds:g} s{when}"
    if isinstance(outcome, Died):
        return f"died{when} ({outcome.cause})"
    return "answered"


class Planner:
    """An addressable planner: starts its process on demand, restarts it, and answers questions in order."""

    def __init__(
        self,
        launch: Launch,
        *,
        hash_seed: int = 1,
        case_seconds: float = CASE_SECONDS,
        memory: int = MEMORY_BYTES,
    ) -> None:
        self.launch = launch
        self.hash_seed = hash_seed
        self.case_seconds = case_seconds
        self.memory = memory
        self.restarts = 0
        self.killed = 0
        self._served = 0
        self._worker: Worker | None = None
        self._hello: Hello | None = None
        self._unusable: PlannerError | None = None
        self._numbers = iter(range(sys.maxsize))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"planner {launch.address}")
        self._closed = False

    @property
    def address(self) -> str:
        """The string by which the user named it."""
        return self.launch.address

    def start(self) -> Future[Hello]:
        """Begins to start the process; the future gives its greeting or raises PlannerError."""
        return self._thread.submit(self._ensure)

    def hello(self) -> Hello:
        """The greeting, starting the process if need be. Raises PlannerError."""
        return self._hello or self.start().result()

    def submit(self, questions: Sequence[Question]) -> Future[list[Answer]]:
        """Queues questions; the future gives one answer each, in order. Raises PlannerError."""
        return self._thread.submit(self._serve, list(questions))

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Answers, in order. Raises PlannerError when no process can be started."""
        return self.submit(questions).result()

    def cpu_seconds(self) -> float:
        """CPU time of the process that serves now."""
        return self._worker.cpu_seconds() if self._worker is not None else 0.0

    def close(self) -> None:
        """Ends the process; questions in flight get no answer."""
        self._closed = True
        if self._worker is not None:
            self._worker.kill()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._worker is not None:
            self._worker.kill()

    def __enter__(self) -> Planner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ensure(self) -> Hello:
        if self._unusable is not None:
            raise self._unusable
        tries = 0
        while self._worker is None or self._hello is None:
            if self._closed:
                raise PlannerError(f"{self.address}: closed")
            tries += 1
            self._worker = Worker(self.launch, hash_seed=self.hash_seed, memory=self.memory)
            try:
                self._hello = self._worker.hello()
            except BaseException as error:
                self._worker.kill()
                self._worker = None
                if not isinstance(error, KilledAtStart) or tries == STARTS:
                    if isinstance(error, PlannerError) and self._hello is None:
                        self._unusable = error  # every question would take a start of seconds to be told the same
                    raise
                self.killed += 1
        return self._hello

    def _serve(self, questions: list[Question]) -> list[Answer]:
        asks = [
            Ask(
                number=next(self._numbers),
                case=q.case,
                depth=q.depth,
                twice=q.twice,
                workload=q.workload,
                config=q.config,
            )
            for q in questions
        ]
        answers: list[Answer] = []
        doubted = -1
        while len(answers) < len(asks):
            self._ensure()
            assert self._worker is not None
            rest = asks[len(answers) :]
            try:
                answers.extend(self._worker.converse(rest, self.case_seconds))
            except _Broken as broken:
                self._discard()
                asked = asks[len(answers)].number
                if _from_outside(broken.outcome) and asked != doubted:
                    self.killed += 1
                    doubted = asked
                else:
                    answers.append(Answer(number=asked, outcome=broken.outcome))
        self._served += len(answers)
        if self._served >= RECYCLE_AFTER:
            self._discard()
        return answers

    def _discard(self) -> None:
        """Ends the process; the next question starts another."""
        if self._worker is not None:
            self._worker.kill()
        self._worker = None
        self._served = 0
        self.restarts += 1
