"""Case files on disk: read within limits, written whole."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

from oracles.case import MAX_FILE_BYTES, Case, CaseError, dump_case, load_case

OPEN_ALREADY = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Standard input and what a shell hands over: what is read there somebody has opened, and writes."""


def open_file(path: Path) -> BinaryIO:
    """A file for reading. Raises OSError for what is none: opening a pipe waits for a writer that may never come."""
    if str(path).startswith(OPEN_ALREADY):
        return path.open("rb")
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(fd, "rb")
    os.close(fd)
    raise OSError(errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(kind) else OSError("is no regular file")


def read_case(path: Path) -> Case:
    """The case in one file, or in a pipe that is open already.

    Raises:
        CaseError: it cannot be read or is no case; the message names the file, the field and the remedy.
    """
    try:
        with open_file(path) as stream:
            data = stream.read(MAX_FILE_BYTES + 1)  # never more: the file may be larger than memory, or endless
        case = load_case(data)
        _refuse_doubled_keys(data)
        return case
    except OSError as error:
        raise CaseError(f"{path}: cannot be read ({error.strerror or error})") from None
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


def _refuse_doubled_keys(data: bytes) -> None:
    """Raises CaseError for a key that stands twice in one object: the decoder took the last, the author meant one."""
    try:
        json.loads(data, object_pairs_hook=_once_each, parse_int=str, parse_float=str)
    except CaseError:
        raise
    except (ValueError, RecursionError) as error:  # in what stood there first, which the decoder passed over
        raise CaseError(f"file: not readable as JSON ({type(error).__name__})") from None


def _once_each(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise CaseError(f"{key}: stands twice in one object; delete one of them")
        seen.add(key)


def read_limited(path: Path, limit: int) -> bytes:
    """A file's bytes. Raises OSError when it cannot be read, is no regular file or holds more than ``limit``."""
    with open_file(path) as stream:
        data = stream.read(limit + 1)  # never more: the file may be larger than memory, or endless
    if len(data) > limit:
        raise OSError(f"larger than {limit:,} bytes")
    return data


MAX_TOML_BYTES = 1 << 20
MAX_TOML_LINE = 4_000
"""A dotted key of a hundred thousand parts keeps the standard library busy for minutes."""


def read_toml(path: Path) -> str:
    """The text of a TOML file of ours. Raises ValueError for one with overlong lines, OSError."""
    text = read_limited(path, MAX_TOML_BYTES).decode()
    if any(len(line) > MAX_TOML_LINE for line in text.splitlines()):
        raise ValueError(f"a line is longer than {MAX_TOML_LINE} characters")
    return text


def write_case(path: Path, case: Case) -> None:
    """Writes a case file whole. Raises OSError."""
    write_whole(path, dump_case(case))


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that readers see the old bytes or the new ones, never a part; makes its folder.

    Raises:
        OSError: it cannot be written; no part of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())  # or a power cut could leave the new name on no bytes
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
