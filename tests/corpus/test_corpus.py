"""Reading, writing and counting case files."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import fuzz.corpus
from fuzz.case_files import read_case, write_case
from fuzz.corpus import (
    CorpusError,
    Entry,
    case_files,
    corpus_folder,
    corpus_stats,
    load_corpus,
    render_stats,
)
from oracles.case import CaseError, dump_case
from tests.models import dense, split_by_draft


def test_the_corpus_of_a_checkout_lies_beside_the_package() -> None:
    assert corpus_folder() == Path(fuzz.corpus.__file__).parents[1] / "corpus"


def test_the_corpus_of_a_wheel_lies_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fuzz" / "_corpus").mkdir(parents=True)
    monkeypatch.setattr(fuzz.corpus, "__file__", str(tmp_path / "fuzz" / "corpus.py"))
    assert corpus_folder() == tmp_path / "fuzz" / "_corpus"


def test_a_missing_corpus_is_an_error_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz.corpus, "__file__", str(tmp_path / "fuzz" / "corpus.py"))
    with pytest.raises(CorpusError, match="install kvfuzz from its wheel"):
        corpus_folder()


def test_files_come_in_order_of_name_from_every_depth(tmp_path: Path) -> None:
    for name in ("b/2.json", "b/1.json", "a.json", "b/c/3.json", "b/.1.json.77", "b/.hidden.json", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(dump_case(dense()))
    assert [path.relative_to(tmp_path).as_posix() for path in case_files(tmp_path)] == [
        *("a.json", "b/1.json", "b/2.json", "b/c/3.json")
    ]


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"nowhere: not a folder"):
        list(case_files(tmp_path / "nowhere"))


def test_every_bad_file_is_named_with_its_field(tmp_path: Path) -> None:
    good = dump_case(dense())
    (tmp_path / "a-good.json").write_bytes(good)
    (tmp_path / "b-kind.json").write_bytes(good.replace(b'"kind":"full"', b'"kind":"fool"'))
    (tmp_path / "c-version.json").write_bytes(good.replace(b'"format": 1', b'"format": 99'))
    (tmp_path / "d-text.json").write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError) as error:
        load_corpus(tmp_path)
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert [Path(line.partition(":")[0]).name for line in lines] == ["b-kind.json", "c-version.json", "d-text.json"]
    assert "specs[0]" in lines[0]
    assert "format: 99 is not known here" in lines[1]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(2**34)  # sparse
    with pytest.raises(CaseError, match=r"huge\.json: file: .* at most"):
        read_case(path)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=r"gone\.json: cannot be read \(No such file"):
        read_case(tmp_path / "gone.json")


def test_a_written_case_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "case.json"
    write_case(path, dense())
    assert read_case(path) == dense()
    assert [one.name for one in path.parent.iterdir()] == ["case.json"]


def test_a_write_replaces_the_old_case(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    write_case(path, dense())
    write_case(path, split_by_draft())
    assert read_case(path) == split_by_draft()


def test_a_failed_write_leaves_the_old_case_and_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "case.json"
    write_case(path, dense())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_case(path, split_by_draft())
    assert read_case(path) == dense()
    assert [one.name for one in tmp_path.iterdir()] == ["case.json"]


ENTRIES = [
    Entry("examples/mixed.json", split_by_draft()),
    Entry("models/dense.json", dense()),
    Entry("models/again.json", dense()),
    Entry("loose.json", dense(count=3)),
]


def test_the_folder_of_an_entry_is_its_first() -> None:
    assert [entry.folder for entry in ENTRIES] == ["examples", "models", "models", ""]


def test_cases_are_counted_by_what_they_hold() -> None:
    stats = corpus_stats(ENTRIES)
    assert (stats.cases, stats.duplicates, stats.layer_total, stats.specs, stats.mixed) == (4, 1, 13, 3, 1)
    assert stats.folders == {"models": 2, ".": 1, "examples": 1}
    assert stats.kinds == {"full": 3, "mla": 1, "sliding_window": 1}
    assert stats.modes == {"sharded": 4, "replicated": 1}
    assert stats.dcp == {"1": 3, "4": 1}
    assert stats.layouts == {"LBNHC": 4}
    assert stats.layers == {"2": 2, "3–4": 1, "5–8": 1}


def test_nothing_is_counted_in_an_empty_corpus() -> None:
    stats = corpus_stats([])
    assert (stats.cases, stats.layers, stats.kinds) == (0, {}, {})


def shown(*entries: Entry) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(render_stats(corpus_stats(entries)))
    return captured.get()


def test_the_counts_can_be_read_in_a_terminal() -> None:
    lines = [line.rstrip() for line in shown(*ENTRIES).splitlines()]
    assert lines[0] == "4 cases, 13 layers, 3 distinct specs; 1 mix replicated layers with others; 1 ask"
    assert lines[1] == "what another one asks"
    assert "folder     models              2  ▇▇▇▇▇▇▇▇▇▇▇▇" in lines
    assert "           sliding_window      1  ▇▇▇▇▇▇" in lines


def test_an_empty_corpus_can_be_shown() -> None:
    assert shown().startswith("0 cases, 0 layers, 0 distinct specs")
