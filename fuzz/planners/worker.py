"""The process that holds one tree of vLLM and plans cases with it. The only file that imports vLLM.

Run by path under the planner's interpreter, with the tree ahead on PYTHONPATH:
``python worker.py --library DIR --ask FD --answer FD [--overlay isolate|FILE.py]…
[--builder CLASS] [--memory BYTES]``.
It needs msgspec and vLLM there and nothing of ours installed: ``oracles`` and ``fuzz`` are loaded by path.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import importlib.util
import os
import resource
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO


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


def import_vllm() -> dict[str, ModuleType]:
    """The modules of vLLM that planning touches, by our short names; absent ones are left out."""
    for broken in ("torchvision", "torchaudio", "torchcodec"):
        # The registry's builds do not load beside a CPU torch, and planning needs none of them.
        sys.modules[broken] = None  # type: ignore[assignment]
    import torch
    import vllm

    torch.set_num_threads(1)
    modules: dict[str, ModuleType] = {"torch": torch, "vllm": vllm}
    for short, path, needed in (
        ("config", "vllm.config", True),
        ("interface", "vllm.v1.kv_cache_interface", True),
        ("utils", "vllm.v1.core.kv_cache_utils", True),
        ("planning", "vllm.v1.core.kv_cache_planning", False),
        ("builder", "vllm.v1.core.kv_cache_config_builder", False),
        ("managers", "vllm.v1.core.single_type_kv_cache_manager", True),
        ("backend", "vllm.v1.attention.backend", False),
        ("mamba", "vllm.v1.attention.backends.registry", False),
        ("backend_utils", "vllm.v1.attention.backends.utils", False),
    ):
        if needed or importlib.util.find_spec(path) is not None:
            modules[short] = importlib.import_module(path)
    return modules


def apply_overlays(overlays: list[str], planner: ModuleType) -> None:
    """Runs each overlay's ``apply(planner_module)`` in the order given."""
    for overlay in overlays:
        if overlay == "isolate":
            from fuzz.planners import isolate

            isolate.apply(planner)
            continue
        spec = importlib.util.spec_from_file_location(f"kvfuzz_overlay_{Path(overlay).stem}", overlay)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if not callable(getattr(module, "apply", None)):
            raise TypeError(f"overlay {overlay} defines no apply(planner_module)")
        module.apply(planner)


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return (
        int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if (Path("/proc/self/statm").exists())
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )


def private_bytes() -> int:
    """Private writable memory, which is what RLIMIT_DATA counts."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


def limit_memory(extra: int) -> int:
    """Lets the process grow by ``extra`` bytes from here; returns what it holds now (0: no limit set)."""
    if not sys.platform.startswith("linux"):
        return 0  # RLIMIT_DATA counts mappings on Linux only
    baseline = private_bytes()
    if extra:
        resource.setrlimit(resource.RLIMIT_DATA, (baseline + extra, baseline + extra))
    return baseline


def read_exactly(stream: BinaryIO, count: int) -> bytes:
    """``count`` bytes, or fewer at the end of the stream."""
    data = stream.read(count)
    return data or b""


def serve(tree: Any, asks: BinaryIO, answers: BinaryIO) -> None:
    """Answers asks until the pipe closes."""
    import msgspec

    from fuzz.planners import protocol
    from fuzz.planners.tree_plan import answer

    decoder = msgspec.msgpack.Decoder(protocol.Ask)
    while len(header := read_exactly(asks, protocol.HEADER_BYTES)) == protocol.HEADER_BYTES:
        ask = decoder.decode(read_exactly(asks, protocol.body_length(header)))
        answers.write(protocol.pack_answer(answer(tree, ask)))
        answers.flush()


def main() -> int:
    """Imports the tree, says hello, serves."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--ask", type=int, required=True)
    parser.add_argument("--answer", type=int, required=True)
    parser.add_argument("--overlay", action="append", default=[])
    parser.add_argument("--builder", default="")
    parser.add_argument("--memory", type=int, default=0)
    args = parser.parse_args()
    del sys.path[0]  # this folder: its module names are not meant to be top-level ones

    started = time.perf_counter()
    load_package("oracles", args.library)
    load_package("fuzz", args.library)
    from fuzz.planners import protocol
    from fuzz.planners.parent import end_with_parent
    from fuzz.planners.tree import open_tree
    from fuzz.planners.tree_owner import BuilderError

    end_with_parent()
    asks = os.fdopen(args.ask, "rb")
    answers = os.fdopen(args.answer, "wb")
    # Four thousand modules make nothing but what stays: collecting between them is a fifth of the time of a start.
    gc.disable()
    try:
        modules = import_vllm()
        # torch installs a handler of its own, which knows no Python frames; take the signals back.
        faulthandler.disable()
        faulthandler.enable()
        apply_overlays(args.overlay, modules.get("planning", modules["utils"]))
        tree = open_tree(modules, args.builder)
    except BuilderError as error:
        answers.write(protocol.pack(protocol.Failed(error=str(error), field="builder")))
        answers.flush()
        return 1
    except BaseException as error:
        # Not Exceptions alone: an overlay that calls sys.exit would end this process without a word.
        import traceback

        traceback.print_exc()
        words = f"{type(error).__name__[:200]}: {protocol.words_of(error, 2000)}"
        if isinstance(error, SystemExit):
            words = f"it asked to exit while starting ({words})"
        answers.write(protocol.pack(protocol.Failed(error=words)))
        answers.flush()
        return 1
    # What the imports made stays, so the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.enable()
    baseline = limit_memory(args.memory)
    hello = tree.hello(
        import_seconds=time.perf_counter() - started, resident_bytes=resident_bytes(), baseline_bytes=baseline
    )
    answers.write(protocol.pack(hello))
    answers.flush()
    try:
        serve(tree, asks, answers)
    except MemoryError:
        # The heap is at its limit; only a fresh process can go on.
        os._exit(protocol.OUT_OF_MEMORY_EXIT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
