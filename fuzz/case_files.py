"""Case files on disk: read within limits, written whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from oracles.case import MAX_FILE_BYTES, Case, CaseError, dump_case, load_case


def read_case(path: Path) -> Case:
    """The case in one file, or in a pipe.

    Raises:
        CaseError: it cannot be read or is no case; the message names the file, the field and the remedy.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)  # never more: the file may be larger than memory, or endless
        return load_case(data)
    except OSError as error:
        raise CaseError(f"{path}: cannot be read ({error.strerror or error})") from None
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


def read_limited(path: Path, limit: int) -> bytes:
    """A file's bytes. Raises OSError when it cannot be read or holds more than ``limit``."""
    with path.open("rb") as stream:
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
