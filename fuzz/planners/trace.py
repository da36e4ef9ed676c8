"""What serving did, call by call, so that a script can do it again without kvfuzz (``fuzz/export/serving.py``).

An event is a name and a few whole numbers; a *spot* is where a check failed, told the same way. Both sides load this
file. The names are those of the methods of ``templates/serving.py.j2``, where their arguments have words.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

EventName = Literal[
    "arrive", "begin", "lookup", "clip", "admit", "extend", "advance", "drain", "free", "preempt", "settle",
    "copy", "write", "encode", "ahead", "state", "ring",
]  # fmt: skip

CONTENT_EVENTS = frozenset({"copy", "write", "encode", "ahead", "state", "ring"})
"""What the worker does with the blocks that it was given; only a check of contents needs them."""

SpotName = Literal["call", "blocks", "hit", "books", "refusal", "content", "state", "ring", "pool", "chunk"]

NUMBERS: dict[SpotName, int] = {
    "call": 0, "books": 0, "refusal": 0, "hit": 1, "ring": 2, "chunk": 3, "pool": 4, "blocks": 5, "state": 5,
    "content": 7,
}  # fmt: skip
"""How many numbers a spot has; that of a pool ends with its chunks, one at least."""


class Event(Struct, frozen=True, array_like=True):
    """One call of the cache manager, or one thing that the worker does with its blocks."""

    name: EventName
    args: tuple[int, ...] = ()


class Spot(Struct, frozen=True, array_like=True):
    """Where a check failed: which check, and the request, group, columns or tokens that it looked at."""

    name: SpotName
    args: tuple[int, ...] = ()


class Trace(Struct, frozen=True, kw_only=True):
    """A workload as it was served on a pool of ``blocks`` blocks.

    ``caching``: whether the manager caches prefixes. ``looks_up``: whether requests are looked up there. ``stores`` are
    the (group, span in tokens, 1 if what is cached depends on the token after) that every step writes.
    """

    blocks: int
    caching: bool
    looks_up: bool
    stores: tuple[tuple[int, int, int], ...] = ()
    events: tuple[Event, ...] = ()


class Recorder:
    """Takes down events while it is ``on``."""

    def __init__(self, *, on: bool) -> None:
        self.on = on
        self.events: list[Event] = []

    def __call__(self, name: EventName, *args: int) -> None:
        """Takes down one event."""
        if self.on:
            self.events.append(Event(name, tuple(int(arg) for arg in args)))

    def refused(self) -> None:
        """The allocation taken down last, whose last argument says whether blocks are given, was refused."""
        if self.on:
            last = self.events.pop()
            self.events.append(Event(last.name, (*last.args[:-1], 0)))
