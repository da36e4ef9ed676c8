"""known.toml: what it covers, and what makes it unusable."""

from __future__ import annotations

import datetime
import os
import tomllib
from pathlib import Path

import pytest

from fuzz.corpus import corpus_folder
from fuzz.known import KnownError, read_all_known, read_known

TODAY = datetime.date(2026, 12, 1)
ENTRY = '[[known]]\nfingerprint = "0123abcd"\nreason = "as reported"\nexpires = 2027-01-01\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "known.toml"
    path.write_text(text)
    return path


def test_an_entry_covers_its_fingerprint(tmp_path: Path) -> None:
    known = read_known(write(tmp_path, ENTRY), TODAY)
    assert known.covers("0123abcd", "unfixed")
    assert not known.covers("ffffffff", "unfixed")


def test_a_regression_is_never_known(tmp_path: Path) -> None:
    assert not read_known(write(tmp_path, ENTRY), TODAY).covers("0123abcd", "regression")


def test_an_intended_change_covers_regressions_too(tmp_path: Path) -> None:
    known = read_known(write(tmp_path, ENTRY + "intended = true\n"), TODAY)
    assert known.covers("0123abcd", "regression")
    assert known.covers("0123abcd", "unfixed")


def test_a_fingerprint_in_two_files_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, ENTRY)
    with pytest.raises(KnownError, match="stands in another file too"):
        read_all_known([tmp_path / name / "known.toml" for name in ("a", "b")], TODAY)


def test_no_file_means_no_known_faults(tmp_path: Path) -> None:
    assert not read_known(tmp_path / "known.toml", TODAY).covers("0123abcd", "unfixed")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY.replace("2027", "2026"), "0123abcd expired on 2026-01-01"),
        (ENTRY + ENTRY, "0123abcd stands twice; delete one"),
        (ENTRY.replace("0123abcd", "0123ABCD"), r"fingerprint"),
        (ENTRY.replace("0123abcd", r"0123abcd\n"), r"fingerprint"),
        (ENTRY.replace("as reported", r"as \u001b[31m reported"), "0123abcd has control characters"),
        (ENTRY.replace("as reported", ""), "reason"),
        (ENTRY.replace('reason = "as reported"\n', ""), "reason"),
        (ENTRY + "because = 1\n", "because"),
        (ENTRY.replace("2027-01-01", '"soon"'), "expires"),
        ("[[known]", "known.toml"),
    ],
)
def test_an_unusable_file_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(KnownError, match=message):
        read_known(write(tmp_path, text), TODAY)


def test_every_known_fault_has_its_minimal_case() -> None:
    entries = tomllib.loads((corpus_folder() / "known.toml").read_text())["known"]
    assert [entry["fingerprint"] for entry in entries if not (corpus_folder() / entry["case"]).is_file()] == []
    assert [entry["fingerprint"] for entry in entries if not entry["under"]] == []


def test_a_fault_that_was_looked_for_and_not_met_is_told(tmp_path: Path) -> None:
    found = 'case = "regress/a.json"\nunder = ["0.32.0 isolate"]\n'
    known = read_known(write(tmp_path, ENTRY + found), TODAY)
    assert [entry.fingerprint for entry in known.unmatched(set(), ["0.32.0 isolate"])] == ["0123abcd"]
    assert known.unmatched({"0123abcd"}, ["0.32.0 isolate"]) == (), "met"
    assert known.unmatched(set(), ["0.33.0 isolate"]) == (), "nobody said that this release has it"


def test_a_folder_or_a_pipe_is_no_file_of_known_faults(tmp_path: Path) -> None:
    (tmp_path / "known.toml").mkdir()
    with pytest.raises(KnownError, match=r"known.toml: cannot be read \(Is a directory\)"):
        read_known(tmp_path / "known.toml", TODAY)
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(KnownError, match=r"pipe.toml: cannot be read \(is no regular file\)"):
        read_known(tmp_path / "pipe.toml", TODAY)
