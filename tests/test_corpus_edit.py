"""Merging, pruning and accepting: what is added, what goes, and that nothing is rewritten."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest
from msgspec import structs

from fuzz.case_files import read_case, write_case
from fuzz.corpus import CorpusError, Entry
from fuzz.corpus_edit import Acceptance, accept, merge, prune, superfluous
from fuzz.known import read_known
from oracles.case import case_id
from oracles.compare import Finding
from tests.models import dense, split_by_draft

FINDING = Finding(
    fingerprint="0123abcd", law="G6", verdict="unfixed", planner="patched", summary="two groups", first_difference="x"
)  # fmt: skip


def acceptance(**changes: object) -> Acceptance:
    """An acceptance with some fields changed."""
    made = Acceptance(
        case=dense(), finding=FINDING, under=("0.32.0 isolate",), intended=False, reason='stands: "quoted"', url="https://example.org/1",
        expires=datetime.date(2030, 1, 2),
    )  # fmt: skip
    return structs.replace(made, **changes)


def test_a_merge_adds_what_is_not_asked_yet(tmp_path: Path) -> None:
    write_case(tmp_path / "from" / "a.json", dense())
    write_case(tmp_path / "from" / "deep" / "b.json", split_by_draft())
    write_case(tmp_path / "into" / "held.json", dense())
    merged = merge(tmp_path / "from", tmp_path / "into")
    assert (merged.added, merged.had) == (("deep/b.json",), 1)
    assert case_id(read_case(tmp_path / "into" / "deep" / "b.json")) == case_id(split_by_draft())


def test_a_merge_never_overwrites_a_file_of_the_same_name(tmp_path: Path) -> None:
    write_case(tmp_path / "from" / "a.json", split_by_draft())
    write_case(tmp_path / "into" / "a.json", dense())
    (added,) = merge(tmp_path / "from", tmp_path / "into").added
    assert added == f"a-{case_id(split_by_draft())}.json"
    assert case_id(read_case(tmp_path / "into" / "a.json")) == case_id(dense())


def test_a_merge_with_one_bad_file_writes_nothing(tmp_path: Path) -> None:
    write_case(tmp_path / "from" / "a.json", dense())
    (tmp_path / "from" / "b.json").write_text('{"format": 99}')
    with pytest.raises(CorpusError, match=r"b\.json"):
        merge(tmp_path / "from", tmp_path / "into")
    assert not (tmp_path / "into").exists()


def test_pruning_keeps_the_least_case_of_a_feature_tuple(tmp_path: Path) -> None:
    one = dense()
    longer = structs.replace(
        one, layers=(*one.layers, *(structs.replace(x, name=f"{x.name}.more") for x in one.layers))
    )
    entries = [Entry("longer.json", longer), Entry("one.json", one), Entry("other.json", split_by_draft())]
    assert [entry.name for entry in superfluous(entries, frozenset())] == ["longer.json"]
    assert superfluous(entries, frozenset({case_id(longer)})) == [], "the least case of a fingerprint stays"


def test_a_dry_prune_removes_nothing(tmp_path: Path) -> None:
    write_case(tmp_path / "a.json", dense())
    write_case(tmp_path / "b.json", dense())
    assert prune(tmp_path, frozenset(), remove=False).removed == ("b.json",)
    assert (tmp_path / "b.json").is_file()
    assert prune(tmp_path, frozenset(), remove=True).kept == ("a.json",)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_accepted_finding_is_known_and_keeps_its_case(tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text("# why this file\n")
    name = accept(tmp_path, acceptance())
    assert case_id(read_case(tmp_path / name)) == case_id(dense())
    text = (tmp_path / "known.toml").read_text()
    assert text.startswith("# why this file\n")
    assert tomllib.loads(text)["known"] == [
        {
            "fingerprint": "0123abcd", "reason": 'stands: "quoted"', "url": "https://example.org/1",
            "expires": datetime.date(2030, 1, 2), "case": name, "under": ["0.32.0 isolate"],
        }
    ]  # fmt: skip
    assert read_known(tmp_path / "known.toml", datetime.date(2029, 1, 1)).covers("0123abcd", "unfixed")


def test_an_entry_is_never_rewritten(tmp_path: Path) -> None:
    accept(tmp_path, acceptance())
    before = (tmp_path / "known.toml").read_bytes()
    with pytest.raises(CorpusError, match="0123abcd is listed already"):
        accept(tmp_path, acceptance(reason="another"))
    assert (tmp_path / "known.toml").read_bytes() == before


def test_an_entry_that_would_not_be_valid_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="reason"):
        accept(tmp_path, acceptance(reason=""))
    assert list(tmp_path.iterdir()) == []
