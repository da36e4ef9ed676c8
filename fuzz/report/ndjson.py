"""Events as newline-delimited JSON, each on disk as soon as it comes.

The first line is ``{"type": "kvfuzz", "format": 1, ...}``. Each further line is one event; its ``type`` is the
event's tag, or its name in lower case. Readers skip types they do not know.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import BinaryIO

import msgspec

FORMAT = 1
"""Version of the lines. A change that old readers would misread raises it; a new type or field does not."""


def header() -> bytes:
    """The first line."""
    return _line({"type": "kvfuzz", "format": FORMAT, "version": version("kvfuzz")})


def encode(event: msgspec.Struct) -> bytes:
    """One event as a line."""
    body = msgspec.to_builtins(event)
    name = event.__struct_config__.tag or type(event).__name__.lower()
    return _line({"type": name, **{key: value for key, value in body.items() if key != "type"}})


def _line(document: dict[str, object]) -> bytes:
    return msgspec.json.encode(document) + b"\n"


class NdjsonLog:
    """Writes each event to a stream that it owns. After a failed write it stays silent until it is closed."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._error: OSError | None = None
        self._write(header())

    def take(self, event: object) -> None:
        """Writes the event and flushes; what is no event of the campaign is skipped."""
        if isinstance(event, msgspec.Struct):
            self._write(encode(event))

    def _write(self, line: bytes) -> None:
        if self._error is not None:
            return
        try:
            self._stream.write(line)
            self._stream.flush()
        except OSError as error:
            self._error = error  # a full disk must not end the campaign

    def close(self) -> None:
        """Closes the stream. Raises the OSError that silenced it."""
        try:
            self._stream.close()
        finally:
            if self._error is not None:
                raise self._error
