"""What travels between kvfuzz and a worker: length-prefixed msgpack over two private pipes.

Standard output stays free for whatever vLLM or an overlay prints. Both sides load this file, under whatever
interpreter they run, so it needs msgspec only.
"""

from __future__ import annotations

import struct
from typing import Any, Literal

import msgspec
from msgspec import Struct

from fuzz.planners.workload import Served, Workload
from oracles.case import Case
from oracles.plan import Outcome, Unsupported

PROTOCOL = 1
MAX_MESSAGE_BYTES = 64 * 2**20
"""A plan of 10,000 layers takes about 5 MiB; more is a worker gone wrong."""

OUT_OF_MEMORY_EXIT = 77
"""Exit status by which a worker says that the planner met its memory limit."""

Depth = Literal["group", "all", "branches", "serve", "views"]
"""How deep to plan: to the groups, through every stage, that with the branches taken (slow; see ``arcs``), or that
and then serve a workload on the plan (see ``workload``) or make the layers' views of the pool (see ``tree_views``)."""


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """First message of a worker.

    ``fields`` maps each kind the tree knows to the case fields it can express. ``capabilities`` names what
    its planner does, from which a rule set is chosen.
    """

    protocol: int
    version: str
    python: str
    planner_module: str
    planner_file: str
    replication_field: Literal["dcp_sharded", "dcp_replicated", ""]
    generation: Literal["packed", "tuples"]
    capabilities: tuple[str, ...]
    fields: dict[str, tuple[str, ...]]
    import_seconds: float
    resident_bytes: int
    baseline_bytes: int


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """Sent instead of Hello when the tree cannot be imported or an overlay raises; ``field`` of the planner's entry is
    at fault, if one is.
    """

    error: str
    field: str = ""


class Ask(Struct, frozen=True, kw_only=True):
    """One case: how deep to plan it, whether to plan it twice (law G9), and the workload when it is to be served.

    ``config`` is the model's ``config.json`` where it is at hand: a class that owns its grouping may read it.
    """

    number: int
    case: Case
    depth: Depth = "all"
    twice: bool = False
    workload: Workload | None = None
    config: str = ""


class View(Struct, frozen=True, kw_only=True):
    """A layer's tensor as vLLM made it: bytes from the pool's first one, elements (block, head, state, content), and
    bytes from one to the next in each.
    """

    layer: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int


class Viewed(Struct, frozen=True, kw_only=True):
    """The views of one worker, up to the record at which there was an ``error`` (its type; ``message`` says more).

    ``device`` is ``cpu``, or ``meta`` for a pool too large to allocate.
    """

    device: str
    views: tuple[View, ...]
    error: str = ""
    message: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """The outcome of one ask.

    ``changed`` names inputs that the call altered (law G10). ``second`` is the outcome of planning again,
    when that differs from the first. ``seconds`` is CPU time inside vLLM's calls. ``branches`` are the keys of
    ``arcs.Branch`` that planning took, when the ask's depth is ``branches``. ``reached`` tells whether a planted
    defect was called (``planting``). ``served`` is what came of the workload of an ask of depth ``serve``,
    ``views`` each worker's of one of depth ``views``.
    """

    number: int
    outcome: Outcome
    changed: tuple[str, ...] = ()
    second: Outcome | None = None
    seconds: float = 0.0
    branches: tuple[str, ...] = ()
    reached: bool = False
    served: Served | None = None
    views: tuple[Viewed, ...] = ()


_HEADER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
_ENCODER = msgspec.msgpack.Encoder()


def pack(message: Struct) -> bytes:
    """One framed message. Text that UTF-8 cannot say, which a planner may give, goes with escapes in its place."""
    try:
        body = _ENCODER.encode(message)
    except UnicodeEncodeError:
        body = _ENCODER.encode(_encodable(msgspec.to_builtins(message, builtin_types=(bytes,))))
    return _HEADER.pack(len(body)) + body


def pack_answer(answer: Answer) -> bytes:
    """A framed answer. A plan with a number beyond 64 bits, which no machine can count, is told as one that cannot be
    expressed: blocks of many sizes without a common divisor have such a common multiple.
    """
    try:
        return pack(answer)
    except OverflowError:
        beyond = Unsupported(field="plan", reason="a number in it takes more than 64 bits")
        return pack(Answer(number=answer.number, outcome=beyond, seconds=answer.seconds, reached=answer.reached))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def words_of(error: BaseException, limit: int) -> str:
    """What an exception says, cut; one that cannot even say that is told by what it raised instead."""
    try:
        return str(error)[:limit]
    except MemoryError:
        raise
    except Exception as another:
        return f"(its text cannot be had: {type(another).__name__})"


def body_length(header: bytes) -> int:
    """Bytes that follow a frame's header."""
    return int(_HEADER.unpack(header)[0])
