"""The folder of findings."""

from __future__ import annotations

from pathlib import Path

from fuzz.campaign.journal import Journal
from fuzz.store import Store


def test_a_new_folder_is_ignored_by_git(tmp_path: Path) -> None:
    Journal.new(Store(tmp_path / ".kvfuzz"), seed=1)
    assert (tmp_path / ".kvfuzz" / ".gitignore").read_text().splitlines()[-1] == "*"


def test_a_folder_that_was_there_is_left_as_it_is(tmp_path: Path) -> None:
    Journal.new(Store(tmp_path), seed=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
