"""A consumer of a campaign's events. The campaign knows none of them, and they ignore events they do not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

EventT = TypeVar("EventT")


class Consumer(Protocol):
    """Takes events as they come, and writes what it has when it is closed."""

    def take(self, event: object) -> None:
        """Notes an event; one of a type it does not know changes nothing. Never raises for a full disk."""

    def close(self) -> None:
        """Writes what is due, also after a run that was interrupted. Raises OSError."""


class ReportError(OSError):
    """Reports that could not be written; the message names each and why."""


def tee(events: Iterable[EventT], consumers: Sequence[Consumer]) -> Iterator[EventT]:
    """Hands each event to every consumer, then passes it on."""
    for event in events:
        for consumer in consumers:
            consumer.take(event)
        yield event


@contextmanager
def closing(consumers: Sequence[Consumer]) -> Iterator[None]:
    """Closes every consumer when the block ends, however it ends.

    Raises:
        ReportError: some report could not be written; the others are. Not raised over an error of the block.
    """
    try:
        yield
    except BaseException:
        close_all(consumers)
        raise
    failed = close_all(consumers)
    if failed:
        raise ReportError("; ".join(failed))


def close_all(consumers: Sequence[Consumer]) -> list[str]:
    """Closes each; returns what went wrong, so that one full disk costs one report only."""
    failed = []
    for consumer in consumers:
        try:
            consumer.close()
        except BrokenPipeError:
            continue  # who read it has gone and wants no more
        except OSError as error:
            failed.append(str(error))
    return failed
