"""Which *branches* of the planner's source a case takes, measured in the worker.

A branch is one way out of an ``if``, a loop or a ``try``: ``into`` its body or ``past`` it. Branches are found in
the source's syntax tree, so that both sides of the pipe name them alike without importing vLLM; which of them a case
takes is seen by tracing the lines that the planner's functions execute. Asked for by the depth ``branches`` only:
tracing makes planning several times slower.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

from msgspec import Struct

from fuzz.planners.protocol import Hello

NOT_PLANNING = frozenset({
    # Block hashes and the free queue: they serve requests.
    "make_block_hash_with_group_id", "get_block_hash", "get_group_id", "maybe_convert_block_hash",
    "resolve_none_hash_seed", "get_none_hash_seed", "init_none_hash", "need_extra_keys", "_gen_mm_extra_hash_keys",
    "_gen_lora_extra_hash_keys", "_gen_prompt_embeds_extra_hash_keys", "generate_block_hash_extra_keys",
    "to_event_extra_keys", "hash_block_tokens", "get_request_block_hasher", "resolve_block_hashes",
    "null_head_len", "generate_lookahead_block_hash_extra_keys",
    # Asked by the running engine's coordinator and profiler, not by planning.
    "eagle_proof_margin", "resolve_cache_hit_alignment_tokens", "resolve_dcp_kv_cache_spec",
    "check_enough_kv_cache_memory", "max_memory_usage_bytes", "estimate_max_model_len", "update_kv_cache_capacity",
    "_kv_cache_device_name",
})  # fmt: skip
"""Functions of the planner's modules that no planning call reaches."""

LineTrace = Callable[[FrameType, str, Any], Any]


class Branch(Struct, frozen=True, order=True):
    """One way out of a statement: the function, its line, the way, and the statement's first line of source."""

    function: str
    line: int
    way: Literal["into", "past"]
    text: str = ""

    @property
    def key(self) -> str:
        """How an answer names it."""
        return f"{self.function}:{self.line}:{self.way}"


class _Site(Struct, frozen=True):
    """A statement with branches: the lines of its head and of its body, both inclusive."""

    function: str
    line: int
    head: tuple[int, int]
    body: tuple[int, int]
    ways: tuple[Literal["into", "past"], ...]
    text: str


def planner_files(hello: Hello) -> tuple[Path, ...]:
    """The source files that hold a planner's grouping, placement and size functions."""
    main = Path(hello.planner_file)
    beside = main.with_name("kv_cache_utils.py")
    return (main,) if beside == main or not beside.is_file() else (main, beside)


def branches_in(files: tuple[Path, ...]) -> tuple[Branch, ...]:
    """Every branch of the planning functions in ``files``, in order of the source."""
    return tuple(
        Branch(site.function, site.line, way, site.text)
        for file in files
        for site in _sites(str(file))
        for way in site.ways
    )


@functools.cache
def _sites(file: str) -> tuple[_Site, ...]:
    source = Path(file).read_text()
    found: list[_Site] = []
    for node in ast.parse(source).body:
        methods = node.body if isinstance(node, ast.ClassDef) and node.name.endswith("ConfigBuilder") else [node]
        for function in methods:
            if isinstance(function, ast.FunctionDef) and function.name not in NOT_PLANNING:
                found += _sites_of(function, source.splitlines())
    return tuple(found)


def _sites_of(function: ast.FunctionDef, lines: list[str]) -> Iterator[_Site]:
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.While):
            last = node.test.end_lineno
        elif isinstance(node, ast.For):
            last = node.iter.end_lineno
        elif isinstance(node, ast.ExceptHandler):
            last = node.lineno
        else:
            continue
        body = (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        yield _Site(
            function.name, node.lineno, (node.lineno, last or node.lineno), body,
            ("into",) if isinstance(node, ast.ExceptHandler) else ("into", "past"), lines[node.lineno - 1].strip(),
        )  # fmt: skip


class Tracer:
    """Records the lines that follow each other in the planning functions of some modules."""

    def __init__(self, modules: list[ModuleType]) -> None:
        self._sites: dict[str, dict[int, list[_Site]]] = {}
        self._spans: dict[str, list[tuple[int, int]]] = {}
        self._arcs: dict[str, set[tuple[int, int]]] = {}
        self._known: dict[tuple[str, tuple[int, int]], tuple[str, ...]] = {}
        self._wanted: dict[Any, bool] = {}
        for module in modules:
            file = str(module.__file__)
            at_line: dict[int, list[_Site]] = {}
            for site in _sites(file):
                for line in range(site.head[0], site.head[1] + 1):
                    at_line.setdefault(line, []).append(site)
            self._sites[file] = at_line
            self._arcs[file] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Traces this thread for the time of the block; what another tracer held is put back."""
        for arcs in self._arcs.values():
            arcs.clear()
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)

    def taken(self) -> tuple[str, ...]:
        """Keys of the branches taken while watching, sorted."""
        found: set[str] = set()
        for file, arcs in self._arcs.items():
            for arc in arcs:
                keys = self._known.get((file, arc))
                if keys is None:
                    keys = self._known[file, arc] = tuple(_ways(self._sites[file], *arc))
                found.update(keys)
        return tuple(sorted(found))

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> LineTrace | None:
        code = frame.f_code
        wanted = self._wanted.get(code)
        if wanted is None:
            # A comprehension's frame repeats its head's line and would look like a loop of its own.
            wanted = self._wanted[code] = code.co_filename in self._arcs and not code.co_name.startswith("<")
        return _line_trace(self._arcs[code.co_filename]) if wanted else None


def _line_trace(arcs: set[tuple[int, int]]) -> LineTrace:
    """A trace function for one frame. An exception breaks the chain: what follows it left no line by a branch."""
    before = 0

    def trace(frame: FrameType, event: str, _arg: Any) -> LineTrace:
        nonlocal before
        if event == "line":
            arcs.add((before, frame.f_lineno))
            before = frame.f_lineno
        elif event == "return":
            arcs.add((before, 0))
        elif event == "exception":
            before = 0
        return trace

    return trace


def _ways(at_line: dict[int, list[_Site]], before: int, after: int) -> Iterator[str]:
    """Keys of the branches that the step from line ``before`` to line ``after`` takes (0: outside the function)."""
    for site in at_line.get(before, ()):
        if site.head[0] <= after <= site.head[1]:
            continue
        way = "into" if site.body[0] <= after <= site.body[1] else "past"
        if way in site.ways:
            yield f"{site.function}:{site.line}:{way}"


@functools.cache
def tracer(*modules: ModuleType) -> Tracer:
    """The tracer of these modules, made once per process."""
    return Tracer(list(dict.fromkeys(modules)))
