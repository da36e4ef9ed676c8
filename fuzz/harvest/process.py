"""Harvests models in a process of their own, under a planner's interpreter and tree."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import IO, Any

import msgspec

from fuzz.harvest.requests import Reply, Request
from fuzz.planners.process import PlannerError
from fuzz.planners.trees import Launch

LIBRARY = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).resolve().parent / "inside" / "main.py"

START_SECONDS = 240.0
"""Importing the model classes takes 6 to 15 s on a warm disk, minutes on a cold or shared one."""

MODEL_SECONDS = 60.0
"""The largest published models build in 10 s."""

MODEL_BYTES = 3 * 2**30
"""Growth of the process while it builds one model; the import before it holds 0.6 GiB."""

MAX_LINE_BYTES = 64 * 2**20
TAIL_LINES = 40
GRACE_SECONDS = 20.0
"""On top of a model's own limit, which the process itself keeps: it must come back even when it does not."""


class Harvester:
    """A process that imported vLLM's model classes once, for one platform, and forks for each model.

    A context manager. Starting is left to the first request.
    """

    def __init__(
        self, launch: Launch, platform: str, *, seconds: float = MODEL_SECONDS, memory: int = MODEL_BYTES
    ) -> None:
        self._launch = launch
        self._platform = platform
        self._seconds = seconds
        self._memory = memory
        self._process: subprocess.Popen[bytes] | None = None
        self._asks: IO[bytes] | None = None
        self._answers = -1
        self._buffer = bytearray()
        self._log: IO[bytes] | None = None
        self.version = ""

    def __enter__(self) -> Harvester:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def harvest(self, request: Request) -> Reply:
        """The cache specs of one model.

        Raises:
            PlannerError: the process cannot be started, or broke beyond the model asked for.
        """
        self._start()
        assert self._asks is not None
        with tempfile.TemporaryDirectory(prefix="kvfuzz-harvest-") as folder:
            ask = {
                "request": _inside(request, Path(folder)), "seconds": self._seconds, "bytes": self._memory,
            }  # fmt: skip
            try:
                self._asks.write(msgspec.json.encode(ask) + b"\n")
                self._asks.flush()
            except BrokenPipeError:
                raise self._broken("ended") from None
            line = self._read_line(self._seconds + GRACE_SECONDS)
        try:
            return msgspec.json.decode(line, type=Reply)
        except msgspec.DecodeError as error:
            raise self._broken(f"sent no answer that can be read ({error})") from None

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            assert self._asks is not None and self._log is not None
            with contextlib.suppress(BrokenPipeError):
                self._asks.close()
            os.close(self._answers)
            self._buffer.clear()
            self._log.close()

    def _start(self) -> None:
        if self._process is not None:
            return
        ask_read, ask_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [
            *(self._launch.python, str(PROGRAM), "--library", str(LIBRARY), "--platform", self._platform),
            *("--ask", str(ask_read), "--answer", str(answer_write)),
        ]
        environment = self._launch.environment(1)
        environment |= {"TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "TORCHINDUCTOR_DISABLE": "1"}
        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
                pass_fds=(ask_read, answer_write), start_new_session=True, cwd=self._launch.folder,
            )  # fmt: skip
        except OSError as error:
            os.close(ask_write)
            os.close(answer_read)
            raise PlannerError(f"{self._launch.address}: cannot run {self._launch.python}: {error}") from error
        finally:
            os.close(ask_read)
            os.close(answer_write)
        self._asks = os.fdopen(ask_write, "wb")
        self._answers = answer_read
        hello = msgspec.json.decode(self._read_line(START_SECONDS))
        if "error" in hello:
            raise self._broken(f"cannot import vLLM's model classes: {hello['error']}")
        self.version = str(hello["vllm"])

    def _read_line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while (end := self._buffer.find(b"\n")) < 0:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._broken(f"gave no answer within {seconds:g} s")
            if not select.select([self._answers], [], [], left)[0]:
                continue
            part = os.read(self._answers, 1 << 18)
            if not part or len(self._buffer) > MAX_LINE_BYTES:
                raise self._broken("ended" if not part else "sent too much")
            self._buffer += part
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _broken(self, what: str) -> PlannerError:
        tail = self.tail()
        self.close()
        return PlannerError(f"{self._launch.address}: the harvesting process {what}\n{tail}".rstrip())

    def tail(self) -> str:
        """The end of what the process printed."""
        if self._log is None or self._log.closed:
            return ""
        self._log.seek(0)
        return b"".join(deque(self._log, maxlen=TAIL_LINES)).decode(errors="replace")


def _inside(request: Request, folder: Path) -> dict[str, Any]:
    """The request as the process reads it, with the configurations as files of a folder that it alone is given."""
    asked: dict[str, Any] = {
        "name": request.name, "folder": _write(folder / "model", request.config), "platform": request.platform,
        "tp": request.tp, "pp": request.pp, "dcp": request.dcp, "block_size": request.block_size,
        "kv_cache_dtype": request.kv_cache_dtype, "max_model_len": request.max_model_len, "speculative": None,
        "engine_args": request.engine_args,
    }  # fmt: skip
    draft = request.draft
    if draft is not None:
        speculative: dict[str, Any] = {"num_speculative_tokens": draft.tokens}
        if draft.method is not None:
            speculative["method"] = draft.method
        if draft.config is not None:
            speculative["model"] = _write(folder / "draft", draft.config)
        asked["speculative"] = speculative
    return asked


def _write(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir()
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    return str(folder)
