"""Every public report of the table is in the corpus, with its source."""

from __future__ import annotations

import re

import pytest

from fuzz.corpus import case_files, corpus_folder
from tests.corpus.asking import report

UPSTREAM = "https://github.com/vllm-project/vllm/"
ASCEND = "https://github.com/vllm-project/vllm-ascend/"
FORK = "https://github.com/local-inference-lab/vllm/"

ROWS: dict[int, tuple[str, int]] = {
    1: (f"{FORK}pull/519", 4),
    2: (f"{FORK}pull/529", 4),
    3: ("https://github.com/ROCm/ATOM/pull/1995", 3),
    4: (f"{FORK}pull/418", 2),
    5: (f"{ASCEND}pull/14765", 2),
    6: (f"{UPSTREAM}pull/50823", 2),
    7: (f"{ASCEND}issues/14314", 3),
    8: (f"{UPSTREAM}pull/51742", 1),
    9: (f"{UPSTREAM}issues/46462", 1),
    10: (f"{UPSTREAM}pull/29303 {UPSTREAM}pull/36684", 8),
    11: (f"{UPSTREAM}pull/21761", 1),
    12: (f"{UPSTREAM}issues/40388", 2),
    13: (f"{UPSTREAM}issues/43626", 2),
    14: (f"{UPSTREAM}pull/40128", 2),
    15: (f"{UPSTREAM}issues/54703", 1),
    16: (f"{UPSTREAM}issues/56774", 1),
    17: (f"{UPSTREAM}issues/53243", 2),
    18: (f"{UPSTREAM}issues/51016", 3),
    19: (f"{UPSTREAM}issues/56396", 3),
    20: (f"{UPSTREAM}issues/54711", 2),
    21: (f"{UPSTREAM}pull/23974", 2),
    22: (f"{UPSTREAM}pull/47272", 3),
    23: (f"{UPSTREAM}pull/41657", 1),
    24: (f"{UPSTREAM}pull/42464 {UPSTREAM}pull/32283", 12),
    25: (f"{UPSTREAM}pull/24571 {UPSTREAM}issues/42911", 15),
    26: (f"{UPSTREAM}pull/50169", 3),
    27: (f"{FORK}pull/603", 2),
    28: (f"{UPSTREAM}pull/25164", 2),
    29: (f"{UPSTREAM}issues/35541", 3),
    30: (f"{FORK}pull/310", 5),
    31: (f"{UPSTREAM}pull/48256", 2),
    32: (f"{UPSTREAM}pull/47035", 1),
}
"""Row of the table: source, and the number of its case files."""


def row_files(row: int) -> list[str]:
    """Names of the files of one row."""
    return [path.stem for path in case_files(corpus_folder() / "reports") if path.stem.startswith(f"r{row:02d}-")]


def test_the_table_has_32_rows() -> None:
    assert list(ROWS) == list(range(1, 33))


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_its_files(row: int) -> None:
    source, count = ROWS[row]
    files = row_files(row)
    assert len(files) == count
    assert {report(name).provenance.source for name in files} == {source}


def test_no_file_is_of_no_row() -> None:
    names = [path.stem for path in case_files(corpus_folder() / "reports")]
    strangers = [name for name in names if not re.fullmatch(r"r\d\d-[a-z0-9.-]+", name) or int(name[1:3]) not in ROWS]
    assert strangers == []


def test_every_report_says_what_it_is() -> None:
    assert [row for row in ROWS for name in row_files(row) if not report(name).provenance.title] == []
