"""The process that holds vLLM's model classes and harvests models, each in a fork of its own.

Run by path under a planner's interpreter: ``python main.py --ask FD --answer FD --platform cpu|smXY``. It needs
vLLM and its requirements there, and nothing of ours. Asks and answers are JSON objects, one a line. vLLM is
imported once; a fork per model keeps what building changes, and what it breaks, from the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

READ_BYTES = 1 << 16


def load_package(name: str, library: Path) -> None:
    """Imports package ``name`` from ``library`` without putting that folder on the path: it may be a
    site-packages whose other contents must not meet this interpreter.
    """
    init = library / name / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(init.parent)])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def open_vllm(platform: str) -> list[str]:
    """Imports vLLM as it is on ``platform``; returns notes on what was put in place of what."""
    from fuzz.harvest.inside import devices, stand_ins

    notes = [stand_ins.stub_packages(stand_ins.VISION_PACKAGES, stand_ins.HELPERS)]
    if platform == "cpu":
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"
        notes.append(devices.hold_back_cpu_features())
    else:
        found = re.fullmatch(r"sm(\d+)(\d)", platform)
        if found is None:
            raise ValueError(f"platform {platform!r}: is neither cpu nor smXY")
        os.environ.pop("VLLM_TARGET_DEVICE", None)
        notes.extend(devices.fake_cuda(int(found[1]), int(found[2])))
    for module in ("vllm.engine.arg_utils", "vllm.model_executor.models.registry", "vllm.v1.worker.gpu.model_runner"):
        importlib.import_module(module)
    if platform == "cpu" and not devices.has_operations():
        notes.append(devices.fake_operations())
    _inspect_in_process()
    return notes


inspection: list[BaseException] = []
"""Why a model class could not be imported, should that happen; vLLM itself only logs it."""


def _inspect_in_process() -> None:
    from vllm.model_executor.models import registry

    def inspect(self: Any) -> Any:
        try:
            return registry._ModelInfo.from_model_cls(self.load_model_cls())
        except Exception as error:
            inspection.append(error)
            raise

    # A process per class, as vLLM does it, would not have the stand-ins.
    registry._LazyRegisteredModel.inspect_model_cls = inspect


def answer_in_fork(ask: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Harvests in a child process, within the ask's ``seconds`` and ``bytes``."""
    read_end, write_end = os.pipe()
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        status = 1
        try:
            os.setsid()
            with os.fdopen(write_end, "wb") as out:
                out.write(json.dumps(_harvest(ask["request"], notes, ask["bytes"])).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(write_end)
    data, in_time = _read_until(read_end, started + ask["seconds"])
    os.close(read_end)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - started
    reply: dict[str, Any]
    if not in_time:
        reply = {"outcome": "failed", "reason": f"not finished within {ask['seconds']:g} s"}
    elif os.waitstatus_to_exitcode(status) != 0 or not data:
        reply = {"outcome": "failed", "reason": f"the process ended with status {os.waitstatus_to_exitcode(status)}"}
    else:
        reply = json.loads(data)
    return {**reply, "seconds": round(seconds, 2), "peak_bytes": usage.ru_maxrss * 1024}


def _read_until(fd: int, deadline: float) -> tuple[bytes, bool]:
    """What the child writes until it closes the pipe, and whether it did in time."""
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if select.select([fd], [], [], left)[0]:
            part = os.read(fd, READ_BYTES)
            if not part:
                return b"".join(parts), True
            parts.append(part)
    return b"".join(parts), False


@contextlib.contextmanager
def _limited(limit: int) -> Iterator[None]:
    """Limits private memory to ``limit`` bytes inside the block only: what is told of it must not meet the limit."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _harvest(request: dict[str, Any], notes: list[str], growth: int) -> dict[str, Any]:
    from fuzz.harvest.inside import build
    from fuzz.planners.worker import private_bytes

    limit = private_bytes() + growth
    try:
        with _limited(limit):
            return {"outcome": "harvested", "harvest": build.harvest(request, notes)}
    except Exception as error:
        refused = error.error if isinstance(error, build.Refused) else error
        if private_bytes() > limit - HEADROOM_BYTES or _is_for_want_of_memory(refused):
            return {"outcome": "failed", "reason": "out of memory"}
        if not isinstance(error, build.Refused):
            raise
        traceback.print_exc()
        if inspection:
            return {"outcome": "failed", "reason": f"its model class cannot be imported here: {inspection[-1]}"}
        if isinstance(refused, ImportError):
            return {"outcome": "failed", "reason": f"building it needs what is not here: {refused}"}
        return {"outcome": "refused", "refusal": build.failure(error)}


WANT_OF_MEMORY = (
    "cannot allocate memory",
    "can't allocate memory",
    "cannot map zero-fill",
    "failed to map segment",
    "error return without exception set",
)
"""Words of the loader, of libraries, of torch's allocator and of CPython, which raise errors of many types at the
limit.
"""


HEADROOM_BYTES = 64 * 2**20
"""An error with less than this left to the limit is for want of memory, whatever it says: libraries that meet the limit
raise what they like, without a word at times.
"""


def _is_for_want_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in WANT_OF_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def main() -> int:
    """Imports vLLM, says what is there, serves until the pipe closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ask", type=int, required=True)
    parser.add_argument("--answer", type=int, required=True)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--library", type=Path, required=True)
    args = parser.parse_args()
    del sys.path[0]  # this folder: its module names are not meant to be top-level ones
    load_package("fuzz", args.library)
    asks = os.fdopen(args.ask, "rb")
    answers = os.fdopen(args.answer, "wb")
    started = time.monotonic()
    try:
        notes = open_vllm(args.platform)
        import vllm

        hello = {"vllm": vllm.__version__, "import_seconds": round(time.monotonic() - started, 2)}
    except Exception as error:
        traceback.print_exc()
        hello = {"error": f"{type(error).__name__}: {error}"[:2000]}
    answers.write(json.dumps(hello).encode() + b"\n")
    answers.flush()
    if "error" in hello:
        return 1
    for line in asks:
        reply = answer_in_fork(json.loads(line), notes)
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
