"""Replays pools on a device: allocates each one, paints its pages, reads them back. One file that needs only torch.

``python device.py plans.jsonl --device cuda --cap-gib 80 --budget-s 200`` on a bare machine; the lines are those of
``kvfuzz export-plans``. Prints one JSON line a pool and a last one with the totals. Exit codes: 0 nothing broken (no
CUDA device counts as skipped, never as passed), 1 something broken, or painting and arithmetic disagree, 2 a file or an
option that cannot be used.

Pools up to ``EXACT_BYTES`` are painted byte for byte. In larger ones a few blocks of every layer are painted, at the
addresses where two of their pages could meet. Units: bytes, blocks, seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

FORMAT = 1
MAX_FILE_BYTES = 256 * 2**20
MAX_LINES = 10_000
MAX_PAGES = 10_000
"""A pool of ten thousand layers takes about 3 MiB of JSON; the limits bound what a hostile file makes us allocate."""
MAX_BYTES = 2**50
MAX_BLOCKS = 2**31 - 1

GUARD = 2**16
"""Bytes before and behind the pool, all 0, which no page is ever painted with. A multiple of ``BASE_ALIGNMENT``."""
EXACT_BYTES = {"cpu": 2**24, "cuda": 2**30}
"""Largest pools painted byte for byte: about 0.1 s each."""
BASE_ALIGNMENT = 256
"""Bytes that CUDA promises for every allocation."""
BASE = 255
"""A byte holds a digit of a page's number, plus one; the number's digits are painted in as many passes."""
TAG = 16
"""Bytes at either end of a page that the index kernels write: one vector load."""
MAX_CHOSEN = 64
MAX_MARKS = 512
"""Blocks painted in a large pool, and addresses in each page: a hostile plan must not cost more than a sound one."""
BATCH = 32
"""Pools a child process replays before a fresh one takes over."""

Check = Literal["P1", "P2", "P3", "P4", "P5", "P6", "P7", "K1", "K2", "K3"]
CHECKS: dict[Check, str] = {
    "P1": "a worker places each of its layers once, and no other",
    "P2": "painted pages stay in the pool",
    "P3": "pages of one group keep their bytes when all of them are painted",
    "P4": "painting a block never changes another block's bytes, whatever their groups",
    "P5": "what a layer writes for a block fits in its page",
    "P6": "blocks of a layer lie a multiple of its alignment apart",
    "P7": "vLLM's own views address the bytes that we compute",
    "K1": "index kernels with 64-bit offsets read back what they wrote",
    "K2": "groups that write their own blocks at the same time keep them",
    "K3": "the allocator aligns the pool and accounts for it",
}
Found = dict[Check, str]


class FileError(ValueError):
    """A line that is no pool; the message names it and the field."""


@dataclass(frozen=True)
class Page:
    """The pages of one layer: block b, head h takes ``strip`` bytes from start + b·block_stride + h·head_stride."""

    layer: str
    group: int
    start: int
    block_stride: int
    heads: int
    head_stride: int
    strip: int
    content: int
    alignment: int


@dataclass(frozen=True)
class Pool:
    """One worker's pool (``fuzz.replay.memory.pools`` says what the fields mean)."""

    format: int
    id: str
    planner: str
    worker: int
    layout: str
    forced: bool
    pool_bytes: int
    num_blocks: int
    here: list[str]
    grouped: list[list[str]]
    placed: list[str]
    pages: list[Page]
    arithmetic: list[str]

    def groups(self) -> dict[int, list[Page]]:
        """The pages of each group."""
        found: dict[int, list[Page]] = {}
        for page in self.pages:
            found.setdefault(page.group, []).append(page)
        return found


RANGES = {
    "format": (FORMAT, FORMAT), "worker": (0, 10**6), "pool_bytes": (0, MAX_BYTES), "num_blocks": (0, MAX_BLOCKS),
    "group": (0, MAX_PAGES), "start": (-MAX_BYTES, MAX_BYTES), "block_stride": (0, MAX_BYTES), "heads": (1, 2**16),
    "head_stride": (0, MAX_BYTES), "strip": (1, MAX_BYTES), "content": (0, MAX_BYTES), "alignment": (1, MAX_BYTES),
}  # fmt: skip


def whole(value: Any, name: str) -> int:
    """An integer within the range of ``name``. Raises FileError."""
    low, high = RANGES[name]
    if type(value) is not int or not low <= value <= high:
        raise FileError(f"{name}: {value!r:.40} is not a whole number from {low} to {high}")
    return value


def text(value: Any, name: str) -> str:
    """A short printable string. Raises FileError."""
    if type(value) is not str or len(value) > 1000 or not value.isprintable():
        raise FileError(f"{name}: is not a printable string of at most 1000 characters")
    return value


def many(value: Any, name: str) -> list[Any]:
    """A list of bounded length. Raises FileError."""
    if type(value) is not list or len(value) > 2 * MAX_PAGES:
        raise FileError(f"{name}: is not a list of at most {2 * MAX_PAGES} items")
    return value


def record(value: Any, kind: type) -> dict[str, Any]:
    """An object with exactly the fields of ``kind``. Raises FileError."""
    wanted = [one.name for one in fields(kind)]
    if type(value) is not dict or sorted(value) != sorted(wanted):
        raise FileError(f"{kind.__name__.lower()}: is not an object with exactly the fields {', '.join(wanted)}")
    return value


def decode(line: str) -> Pool:
    """The pool in one line of JSON. Raises FileError."""
    try:
        raw = record(json.loads(line), Pool)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FileError(f"is not JSON ({error})") from None
    if type(raw["forced"]) is not bool:
        raise FileError("forced: is not true or false")
    made: dict[str, Any] = {"forced": raw["forced"], "pages": [page_of(item) for item in many(raw["pages"], "pages")]}
    for name in ("format", "worker", "pool_bytes", "num_blocks"):
        made[name] = whole(raw[name], name)
    for name in ("id", "planner", "layout"):
        made[name] = text(raw[name], name)
    for name in ("here", "placed", "arithmetic"):
        made[name] = [text(item, name) for item in many(raw[name], name)]
    made["grouped"] = [
        [text(item, "grouped") for item in many(group, "grouped")] for group in many(raw["grouped"], "grouped")
    ]
    return Pool(**made)


def page_of(value: Any) -> Page:
    """The pages of one layer. Raises FileError."""
    made: dict[str, Any] = {k: text(v, k) if k == "layer" else whole(v, k) for k, v in record(value, Page).items()}
    return Page(**made)


def read_pools(path: Path) -> list[Pool]:
    """All pools of a file. Raises FileError, naming the line."""
    try:
        if path.is_fifo():
            raise FileError(f"{path}: is no regular file")  # opening it would wait for a writer
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    lines = data.decode(errors="replace").splitlines()
    if len(data) > MAX_FILE_BYTES or len(lines) > MAX_LINES:
        raise FileError(f"{path}: has more than {MAX_FILE_BYTES:,} bytes or {MAX_LINES:,} lines; split it")
    pools = []
    for number, line in enumerate(lines, 1):
        try:
            pools.append(decode(line))
        except FileError as error:
            raise FileError(f"{path}, line {number}: {error}; write it anew with `kvfuzz export-plans`") from None
    if not pools:
        raise FileError(f"{path}: holds no plan; write some with `kvfuzz export-plans`")
    return pools


def look(pool: Any) -> Found:
    """The checks that need no memory: P1, P5, P6. Takes a pool of this file or of ``fuzz.replay.memory``."""
    found: Found = {}
    here, counts = set(pool.here), Counter(pool.placed)
    grouped = {name for group in pool.grouped for name in group}
    for names, words in (
        (here - counts.keys(), "not placed on its worker"),
        (counts.keys() - here, "placed on a worker that has not got it"),
        ({name for name, count in counts.items() if count > 1}, "placed twice"),
        (here ^ grouped, "in no group of its worker, or in one of another"),
    ):
        if names:
            found.setdefault("P1", f"{', '.join(sorted(names)[:3])}: {words}")
    for page in pool.pages:
        if page.content > page.heads * page.strip:
            words = f"{page.layer} writes {page.content} bytes a block into a page of {page.heads * page.strip}"
            found.setdefault("P5", words)
        if pool.num_blocks > 1 and page.block_stride % page.alignment:
            words = f"blocks of {page.layer} lie {page.block_stride} bytes apart, not a multiple of {page.alignment}"
            found.setdefault("P6", words)
    return found


class Memory:
    """A pool allocated on a device, between two guards. ``torch`` is passed around: the parent never imports it."""

    def __init__(self, torch: Any, pool: Pool, device: str) -> None:
        self.torch, self.pool, self.device = torch, pool, device
        self.buffer = torch.empty(
            pool.pool_bytes + 2 * GUARD, dtype=torch.uint8, device=device
        )  # lazy: no page is touched
        self.buffer[:GUARD] = 0
        self.buffer[-GUARD:] = 0
        self.inside = self.buffer[GUARD:-GUARD]
        self.found: Found = {}
        self.painted = 0
        self.views: dict[Page, Any] = {}
        for page in pool.pages:
            shape, steps = (pool.num_blocks, page.heads, page.strip), (page.block_stride, page.head_stride, 1)
            try:
                self.views[page] = torch.as_strided(self.buffer, shape, steps, GUARD + page.start)
            except RuntimeError:  # torch itself looks whether a view leaves its storage
                self.found.setdefault("P2", f"pages of {page.layer} leave the pool by more than {GUARD} bytes")

    def groups(self) -> list[list[tuple[Page, Any]]]:
        """Pages that have views, by group."""
        made = [
            [(page, self.views[page]) for page in pages if page in self.views] for pages in self.pool.groups().values()
        ]
        return [pages for pages in made if pages]

    def codes(self, numbers: Any, digit: int) -> Any:
        """A digit of each number as a byte that is not 0."""
        return (numbers // BASE**digit % BASE + 1).to(self.torch.uint8).to(self.device)

    def guards_changed(self) -> None:
        """Notes a write beside the pool."""
        if bool(self.buffer[:GUARD].any()) or bool(self.buffer[-GUARD:].any()):
            self.found.setdefault("P2", "pages were written outside the pool")


def digits(count: int) -> int:
    """Passes that tell ``count`` numbers apart."""
    passes = 1
    while BASE**passes < count:
        passes += 1
    return passes


def exact(memory: Memory) -> None:
    """Paints every byte of every page, group by group, with page numbers and then with block ids."""
    torch, blocks = memory.torch, memory.pool.num_blocks
    ids = torch.arange(blocks)
    groups = memory.groups()
    for pages in groups:
        for digit in range(digits(len(pages) * blocks)):
            written = []
            for at, (page, view) in enumerate(pages):
                code = memory.codes(at * blocks + ids, digit)[:, None, None]
                if write(memory, page, view, code):
                    written.append((page, view, code))
            for page, view, code in written:
                if bool((view != code).any()):
                    memory.found.setdefault("P3", f"pages of {page.layer} lost bytes to its own group")
    memory.guards_changed()
    for digit in range(digits(blocks)):
        owner = torch.zeros_like(memory.inside)
        code = memory.codes(ids, digit)[:, None, None]
        for pages in groups:
            memory.inside.zero_()
            for page, view in pages:
                write(memory, page, view, code)
            for mine, held in zip(memory.inside.split(2**26), owner.split(2**26), strict=True):
                if bool(((mine != held) & (mine != 0) & (held != 0)).any()):
                    memory.found.setdefault(
                        "P4", f"blocks of the group of {pages[0][0].layer} hold bytes of other blocks"
                    )
                held.copy_(torch.where(held == 0, mine, held))


def write(memory: Memory, page: Page, view: Any, code: Any) -> bool:
    """Writes ``code`` to all pages of a layer; whether torch agreed to."""
    try:
        view.copy_(code.expand_as(view))
    except RuntimeError as error:
        if "single memory location" not in str(error):
            raise
        memory.found.setdefault("P3", f"pages of {page.layer} in different blocks are one")
        return False
    memory.painted += view.numel()
    return True


def chosen_blocks(pool: Pool) -> list[int]:
    """The first two blocks, the middle, the last two, and those around multiples of 2 GiB."""
    last = pool.num_blocks - 1
    chosen = {0, 1, last // 2, last - 1, last}
    for power in range(31, 36):
        for page in pool.pages:
            for head in {0, page.heads - 1}:
                gap = 2**power - page.start - head * page.head_stride
                if page.block_stride and -page.block_stride <= gap <= (last + 1) * page.block_stride:
                    chosen |= {gap // page.block_stride + step for step in (-1, 0, 1)}
    return sorted(block for block in chosen if 0 <= block <= last)[:MAX_CHOSEN]


def sparse(memory: Memory) -> None:
    """Paints chosen blocks at every address where one of their pages begins or ends.

    Two pages that meet both hold the first byte of one of them, so these addresses are enough.
    """
    torch, blocks = memory.torch, memory.pool.num_blocks
    chosen = torch.tensor(chosen_blocks(memory.pool))
    groups = []
    for pages in memory.groups():
        starts, strips, numbers = [], [], []
        for at, (page, _) in enumerate(pages):
            heads = torch.arange(page.heads) * page.head_stride
            starts.append((page.start + chosen[:, None] * page.block_stride + heads[None, :]).ravel())
            strips.append(torch.full_like(starts[-1], page.strip))
            numbers.append((at * blocks + chosen)[:, None].expand(-1, page.heads).ravel())
        groups.append((pages[0][0].layer, *(torch.cat(column) for column in (starts, strips, numbers))))
    marks = torch.unique(torch.cat([torch.cat((starts, starts + strips - 1)) for _, starts, strips, _ in groups]))
    everywhere = (GUARD + marks).to(memory.device)
    held = [torch.zeros(len(marks), dtype=torch.uint8, device=memory.device) for _ in range(digits(blocks))]
    for layer, starts, strips, numbers in groups:
        first = torch.searchsorted(marks, starts)
        counts = (torch.searchsorted(marks, starts + strips) - first).clamp(max=MAX_MARKS)
        owner = torch.repeat_interleave(numbers, counts)
        begins = torch.repeat_interleave(first - (counts.cumsum(0) - counts), counts)
        places = (GUARD + marks[begins + torch.arange(len(owner))]).to(memory.device)
        for digit in range(digits(int(numbers.max()) + 1)):
            code = memory.codes(owner, digit)
            memory.buffer.index_copy_(0, places, code)
            if bool((memory.buffer.index_select(0, places) != code).any()):
                memory.found.setdefault("P3", f"pages of the group of {layer} lost bytes to it")
        memory.painted += len(places)
        memory.guards_changed()
        for digit, owned in enumerate(held):
            memory.buffer[everywhere] = 0
            memory.buffer.index_copy_(0, places, memory.codes(owner % blocks, digit))
            mine = memory.buffer.index_select(0, everywhere)
            if bool(((mine != owned) & (mine != 0) & (owned != 0)).any()):
                memory.found.setdefault("P4", f"blocks of the group of {layer} hold bytes of other blocks")
            owned.copy_(torch.where(owned == 0, mine, owned))
        memory.buffer[everywhere] = 0


def index_kernels(memory: Memory) -> None:
    """Writes both ends of the chosen blocks' pages by ``index_copy_`` on strided views, and selects them back."""
    chosen = memory.torch.tensor(chosen_blocks(memory.pool))
    for pages in memory.groups():
        numbers = [at * memory.pool.num_blocks + chosen for at in range(len(pages))]
        for digit in range(digits(len(pages) * memory.pool.num_blocks)):
            ends = [
                (end, memory.codes(one, digit))
                for (_, view), one in zip(pages, numbers, strict=True)
                for end in tags(view)
            ]
            if not indexed(ends, chosen.to(memory.device)):
                memory.found["K1"] = f"pages of the group of {pages[0][0].layer} read back other bytes"


def tags(view: Any) -> tuple[Any, Any]:
    """The first bytes of the first head and the last bytes of the last, of every block."""
    return view[:, 0, :TAG], view[:, -1, -TAG:]


def indexed(ends: Sequence[tuple[Any, Any]], blocks: Any) -> bool:
    """Whether every end holds its code after all were written."""
    for end, code in ends:
        end.index_copy_(0, blocks, code[:, None].expand(-1, end.shape[1]).contiguous())
    return all(bool((end.index_select(0, blocks) == code[:, None]).all()) for end, code in ends)


def owned_writes(memory: Memory) -> None:
    """Deals blocks out to the groups, lets all write at the same time (CUDA: a stream each), and reads back."""
    torch, groups = memory.torch, memory.groups()
    chosen = torch.tensor(chosen_blocks(memory.pool))
    waiting = []
    if memory.device == "cuda":
        torch.cuda.synchronize()
    for at, pages in enumerate(groups):
        mine = chosen[at :: len(groups)]
        if not len(mine):
            continue
        blocks = mine.to(memory.device)
        code = memory.codes(torch.arange(at, len(chosen), len(groups)), 0)  # places among at most 64: one byte each
        if memory.device == "cuda":
            torch.cuda.synchronize()  # the operands are there; from here on nobody waits for anybody
        with torch.cuda.stream(torch.cuda.Stream()) if memory.device == "cuda" else contextlib.nullcontext():
            for _, view in pages:
                for end in tags(view):
                    end.index_copy_(0, blocks, code[:, None].expand(-1, end.shape[1]).contiguous())
                    waiting.append((pages[0][0].layer, end, blocks, code))
    if memory.device == "cuda":
        torch.cuda.synchronize()
    for layer, end, blocks, code in waiting:
        if bool((end.index_select(0, blocks) != code[:, None]).any()):
            memory.found["K2"] = f"pages of the group of {layer} lost bytes to another group"


def disagreement(found: Found, arithmetic: Sequence[str], *, all_painted: bool) -> list[str]:
    """Checks on which painting and interval arithmetic differ.

    Painting shows only what is there. What it need not show: bytes shared by pages that lie too far outside the pool
    to be painted; other groups' bytes where a group overwrites its own; and, of few blocks, what others do.
    """
    excused = {"P3", "P4"} if "P2" in found or not all_painted else {"P4"} if "P3" in found else set()
    seen = {check for check in found if check in ("P1", "P2", "P3", "P4", "P5", "P6")}
    return sorted((seen - set(arithmetic)) | (set(arithmetic) - seen - excused))


def accounted(torch: Any, size: int, before: int) -> bool:
    """Whether the allocator says that it gave out ``size`` bytes, but for its rounding (below 32 MiB)."""
    given: int = torch.cuda.memory_allocated() - before
    return size <= given < size + 2**25


def replay_pool(torch: Any, pool: Pool, device: str, cap: int) -> dict[str, Any]:
    """One pool on a device: what was done, and what was found."""
    told = {
        name: getattr(pool, name)
        for name in ("id", "planner", "worker", "layout", "forced", "pool_bytes", "num_blocks")
    }
    begun = time.perf_counter()
    found = look(pool)
    size = pool.pool_bytes + 2 * GUARD
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else cap
    if size > min(cap, free):
        return told | {"result": "skipped", "reason": f"takes {size:,} bytes; {min(cap, free):,} are to be used"}
    mode = "exact" if size <= EXACT_BYTES[device] else "sparse"
    alignment, painted = 0, 0
    if pool.pages and pool.num_blocks:
        before = torch.cuda.memory_allocated() if device == "cuda" else 0
        memory = Memory(torch, pool, device)
        base = memory.buffer.data_ptr()
        if device == "cuda" and (base % BASE_ALIGNMENT or not accounted(torch, size, before)):
            memory.found["K3"] = f"base {base:#x}, {torch.cuda.memory_allocated() - before:,} bytes for {size:,}"
        if memory.views:
            (exact if mode == "exact" else sparse)(memory)
        if memory.views and not memory.found.keys() & {"P2", "P3", "P4"}:
            index_kernels(memory)
            owned_writes(memory)
        found, painted = found | memory.found, memory.painted
        alignment = math.gcd(base + GUARD, *(n for page in pool.pages for n in (page.start, page.block_stride)), 4096)
        del memory
        if device == "cuda" and torch.cuda.memory_allocated() != before:
            found.setdefault("K3", "the pool was freed, and the allocator counts it still")
    told |= {
        "mode": mode,
        "painted_bytes": painted,
        "alignment": alignment,
        "seconds": round(time.perf_counter() - begun, 4),
    }
    differs = disagreement(found, pool.arithmetic, all_painted=mode == "exact")
    result = "disagrees" if differs else "broken" if found else "clean"
    found_list = [{"check": check, "detail": found[check]} for check in sorted(found)]
    return (
        told
        | {"result": result, "found": found_list}
        | ({"reason": f"arithmetic differs on {differs}"} if differs else {})
    )


def child(device: str, cap: int) -> None:
    """Replays the pools of standard input; a line out for each, at once, so that a fault shows whose it is."""
    for broken in ("torchvision", "torchaudio"):
        sys.modules[broken] = None  # type: ignore[assignment]  # not needed, and often not loadable
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        tell({"no_device": "no CUDA device"})
        return
    torch.set_num_threads(1)
    tell({"torch": torch.__version__, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"})
    for line in sys.stdin.read().splitlines():
        pool = decode(line)
        try:
            tell(replay_pool(torch, pool, device, cap))
        except MemoryError as error:
            tell({"id": pool.id, "worker": pool.worker, "result": "skipped", "reason": f"out of memory {error}"})
    tell({"peak_bytes": peak_bytes()})


def peak_bytes() -> int:
    """The most memory of this process that was in RAM."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    # Elsewhere; on Linux it would count what the parent held when it started this process.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tell(message: dict[str, Any]) -> None:
    """One line of JSON on standard output, now."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def replay(pools: Sequence[Pool], device: str, cap_gib: float, budget_s: float) -> Iterator[dict[str, Any]]:
    """A result for each pool, then ``{"summary": …}``.

    Child processes replay ``BATCH`` pools each. A pool that ends its process (a device fault) has that as its result,
    and a fresh process goes on with the next.
    """
    begun = time.monotonic()
    counts: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    at = 0
    while at < len(pools):
        left = budget_s - (time.monotonic() - begun)
        reason = facts.get("no_device") or ("out of time" if left <= 0 else "")
        results = (
            ({"result": "skipped", "reason": reason} for _ in pools[at:]) if reason
            else run_child(pools[at : at + BATCH], device, cap_gib, left, facts)
        )  # fmt: skip
        for result in results:
            whole_result = {"id": pools[at].id, "worker": pools[at].worker, "planner": pools[at].planner} | result
            counts[whole_result["result"]] += 1
            at += 1
            yield whole_result
            if whole_result["result"] == "disagrees":
                pools = pools[:at]  # our own fault: nothing more is worth asking
                break
    yield {"summary": {"pools": at, **counts, **facts, "seconds": round(time.monotonic() - begun, 2)}}


def run_child(
    pools: Sequence[Pool], device: str, cap_gib: float, seconds: float, facts: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Results of the first pools, up to one that ends the child; ``facts`` takes what the child tells of itself."""
    command = [sys.executable, os.path.realpath(__file__), "--child", "--device", device, "--cap-gib", str(cap_gib)]
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write("".join(json.dumps(asdict(pool)) + "\n" for pool in pools).encode())
        given.seek(0)
        process = subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=errors, text=True)
        late = threading.Timer(seconds, process.kill)
        late.start()
        done = 0
        try:
            assert process.stdout is not None
            for line in process.stdout:
                message = json.loads(line)
                if "result" in message:
                    done += 1
                    yield message
                else:
                    peak = max(facts.get("peak_bytes", 0), message.get("peak_bytes", 0))
                    facts |= message | ({"peak_bytes": peak} if peak else {})
            code = process.wait()
            in_time = late.is_alive()
        finally:
            late.cancel()
            process.kill()
            process.wait()
        if done < len(pools) and "no_device" not in facts:
            errors.seek(0, os.SEEK_END)
            errors.seek(max(0, errors.tell() - 1500))
            words = errors.read().decode(errors="replace").strip()
            yield {"result": "died", "reason": f"exit {code}: {words}"} if in_time else OUT_OF_TIME


OUT_OF_TIME = {"result": "skipped", "reason": "out of time"}
FAILING = ("broken", "died", "disagrees")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Replays KV-cache pools on a device.")
    parser.add_argument("plans", type=Path, nargs="?", help="file of `kvfuzz export-plans`")
    parser.add_argument("--device", choices=sorted(EXACT_BYTES), default="cpu")
    parser.add_argument("--cap-gib", type=float, default=8.0, help="largest pool, in GiB")
    parser.add_argument("--budget-s", type=float, default=200.0, help="seconds for all pools")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        child(given.device, int(given.cap_gib * 2**30))
        return 0
    if given.plans is None:
        parser.error("name a file of pools")
    try:
        pools = read_pools(given.plans)
    except FileError as error:
        sys.stderr.write(f"device: {error}\n")
        return 2
    failed = False
    for result in replay(pools, given.device, given.cap_gib, given.budget_s):
        tell(result)
        failed = failed or result.get("result") in FAILING
        if "no_device" in result.get("summary", ()):
            sys.stderr.write(f"skipped: no CUDA device ({result['summary']['skipped']} pools)\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
