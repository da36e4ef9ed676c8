"""Events as lines: each whole and at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import Struct

from fuzz.campaign import Found
from fuzz.report.ndjson import NdjsonLog
from tests.report.conftest import Told


def log_to(path: Path) -> NdjsonLog:
    return NdjsonLog(path.open("wb", buffering=0))


def test_the_format_comes_first_and_each_event_is_there_at_once(told: Told, tmp_path: Path) -> None:
    path = tmp_path / "out.ndjson"
    log = log_to(path)
    for number, event in enumerate(told.events, start=2):
        log.take(event)
        assert path.read_bytes().count(b"\n") == number
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["type"], lines[0]["format"]) == ("kvfuzz", 1)
    types = [line["type"] for line in lines[1:]]
    assert (types[0], types[-1]) == ("started", "finished")
    told_found = [event.witness.fingerprint for event in told.events if isinstance(event, Found)]
    assert [line["witness"]["fingerprint"] for line in lines if line["type"] == "found"] == told_found


def test_an_event_without_a_tag_is_named_by_its_type(tmp_path: Path) -> None:
    class Later(Struct):
        text: str

    log = log_to(tmp_path / "out.ndjson")
    log.take(Later(text="two\nlines"))
    log.take("no event at all")
    log.close()
    lines = (tmp_path / "out.ndjson").read_text().splitlines()
    assert [json.loads(line) for line in lines[1:]] == [{"type": "later", "text": "two\nlines"}]


def test_a_full_disk_silences_the_log_and_is_told_at_the_end(told: Told) -> None:
    log = log_to(Path("/dev/full"))
    for event in told.events:
        log.take(event)
    with pytest.raises(OSError, match="No space left"):
        log.close()
