"""Reports as asked for on a command line: ``html=out.html``, ``junit=out.xml``, ``markdown=-``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, get_args

from msgspec import Struct

from fuzz.case_files import write_whole
from fuzz.cli_common import Failure
from fuzz.report import html, junit, markdown, sarif
from fuzz.report.consumer import Consumer
from fuzz.report.details import Detail
from fuzz.report.ndjson import NdjsonLog
from fuzz.report.summary import Gathering, Summary

Format = Literal["html", "junit", "markdown", "ndjson", "sarif"]
FORMATS: tuple[Format, ...] = get_args(Format)

AskDetails = Callable[[Summary], Mapping[str, Detail]]
"""Gives what a page shows beside findings; called once, when the run is over and its planners still are there."""


class ReportSpec(Struct, frozen=True, kw_only=True):
    """A format and where it goes; no path means standard output."""

    format: Format
    path: Path | None


def parse_reports(texts: Sequence[str]) -> list[ReportSpec]:
    """All ``--report`` options of a command. Raises Failure when two would write to one place."""
    specs = [parse_report(text) for text in texts]
    for at, spec in enumerate(specs):
        if any(other.path == spec.path for other in specs[:at]):
            raise Failure(f"--report {texts[at]!r}: another report goes there already; give it a file of its own", 2)
    return specs


def parse_report(text: str) -> ReportSpec:
    """One ``FORMAT=FILE``. Raises Failure for an unknown format and for a file that cannot be written."""
    name, equals, target = text.partition("=")
    if name not in FORMATS:
        raise Failure(f"--report {text!r}: {name!r} is no format; choose one of {', '.join(FORMATS)}", 2)
    if not equals or not target:
        raise Failure(f"--report {text!r}: names no file; write {name}=FILE, or {name}=- for standard output", 2)
    format_: Format = name
    if target == "-":
        return ReportSpec(format=format_, path=None)
    path = Path(target).expanduser()
    problem = _problem(path)
    if problem:
        raise Failure(f"--report {text!r}: {problem}", 2)
    return ReportSpec(format=format_, path=path.absolute())


def _problem(path: Path) -> str:
    """Why a file cannot be written; told before a run and not after it."""
    if path.is_dir():
        return f"{path} is a folder; name a file in it"
    if path.exists():
        writable = os.access(path, os.W_OK) and (not path.is_file() or os.access(path.parent, os.W_OK))
        return "" if writable else f"{path} cannot be written; choose another file"
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is no folder; choose another place"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"folder {folder} cannot be written; choose another"


def open_consumers(specs: Sequence[ReportSpec], ask_details: AskDetails, replay_arguments: str = "") -> list[Consumer]:
    """A consumer for each spec. Files of the end are written on ``close``; NDJSON is opened now.

    Raises:
        Failure: an NDJSON file cannot be opened.
    """
    return [_open(spec, ask_details, replay_arguments) for spec in specs]


def _open(spec: ReportSpec, ask_details: AskDetails, replay_arguments: str) -> Consumer:
    if spec.format == "ndjson":
        return NdjsonLog(_stream(spec.path))
    if spec.format == "html":
        return EndReport(lambda s: html.render(s, ask_details(s), replay_arguments), spec.path)
    render = {"junit": junit.render, "markdown": markdown.render, "sarif": sarif.render}[spec.format]
    return EndReport(lambda s: render(s, replay_arguments), spec.path)


class EndReport:
    """A report of the whole run, written when it is closed: whole, or not at all."""

    def __init__(self, render: Callable[[Summary], str], path: Path | None) -> None:
        self._render, self._path = render, path
        self._gathering = Gathering()

    def take(self, event: object) -> None:
        """Notes an event."""
        self._gathering.take(event)

    def close(self) -> None:
        """Renders and writes. Raises OSError."""
        data = self._render(self._gathering.summary()).encode()
        try:
            if self._path is not None and (self._path.is_file() or not self._path.exists()):
                write_whole(self._path, data)
                return
            with _stream(self._path) as stream:  # a pipe or a device is written to, not replaced
                stream.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = self._path or "standard output"
            raise OSError(
                f"--report: {where} cannot be written ({error.strerror or error}); what was found is stored"
            ) from None


def _stream(path: Path | None) -> BinaryIO:
    """Standard output under a number of its own, or a file that is written as it goes. Raises Failure."""
    try:
        if path is None:
            sys.stdout.flush()
            return os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb", buffering=0)
    except OSError as error:
        raise Failure(f"--report: {path or 'standard output'} cannot be written ({error.strerror})", 2) from None
