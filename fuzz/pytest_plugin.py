"""The pytest plugin: planners as fixtures, corpus cases as test items, profiles for property tests.

``pytest corpus --kv-patched git:.@my-branch`` asks every corpus case of a warm pair of planners, one pair per process
of pytest-xdist. A case file is collected when it lies in a folder of a corpus, which is one that holds a
``known.toml``. What fails is kept in ``.kvfuzz`` before a planner sees it, and its report ends in the line that asks it
again.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fuzz.case_files import read_case
from fuzz.corpus import corpus_folder
from fuzz.known import KnownFindings, read_known
from fuzz.pair import Judged, Pair, choose_contract
from fuzz.planners.address import PATCHED, UNPATCHED, as_options
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES, Planner
from fuzz.planners.trees import open_launch, read_config
from fuzz.store import Store
from fuzz.strategies import profiles
from oracles.case import Case, case_id
from oracles.compare import FAILING, Finding
from oracles.law import Contract
from oracles.plan import Outcome
from oracles.reference import Unruled, expected_plan

Check = Callable[[Case], Judged]
"""Asks both planners one case and fails the test on a finding that is not known."""

_PAIR = pytest.StashKey[Pair]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that name the planners."""
    group = parser.getgroup("kvfuzz", "vLLM's KV-cache planner")
    group.addoption("--kv-unpatched", default=UNPATCHED, metavar="ADDRESS", help="planner to compare with")
    group.addoption("--kv-patched", default=PATCHED, metavar="ADDRESS", help="planner under test")
    group.addoption(
        "--kv-contract", default=None, choices=("native", "isolate"),
        help="contract under test; default: what the patched planner promises",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Registers the Hypothesis profiles before Hypothesis loads the one that the command line names."""
    profiles.register()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """A case file below a folder with a ``known.toml``."""
    if file_path.suffix != ".json" or file_path.name.startswith(".") or _corpus_of(file_path) is None:
        return None
    return CaseFile.from_parent(parent, path=file_path)


def _corpus_of(path: Path) -> Path | None:
    """The corpus that a file lies in: its own folder, or one or two above."""
    return next((folder for folder in list(path.parents)[:3] if (folder / "known.toml").is_file()), None)


@functools.cache
def _known_beside(corpus: Path) -> KnownFindings:
    """What the corpus lists as known, and what kvfuzz's own corpus does: a copy of that may list the same."""
    today = datetime.date.today()
    listed = {e.fingerprint: e for e in read_known(corpus_folder() / "known.toml", today).entries}
    listed |= {e.fingerprint: e for e in read_known(corpus / "known.toml", today).entries}
    return KnownFindings(list(listed.values()))


class CaseFile(pytest.File):
    """One case file."""

    def collect(self) -> Iterator[pytest.Item]:
        """The one question that it holds."""
        yield CaseItem.from_parent(self, name=self.path.stem)


class CaseItem(pytest.Item):
    """One case, asked of both planners."""

    def runtest(self) -> None:
        """Raises Failed with the findings that are not known."""
        corpus = _corpus_of(self.path)
        assert corpus is not None
        known = _known_beside(corpus)
        check_case(pair_of(self.config), known, read_case(self.path), arguments(self.config))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """The findings, without a trace through kvfuzz."""
        del style
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The case file, and its name below the corpus."""
        corpus = _corpus_of(self.path)
        assert corpus is not None
        return self.path, 0, self.path.relative_to(corpus).with_suffix("").as_posix()


def arguments(config: pytest.Config) -> str:
    """The options of ``kvfuzz replay`` that ask the same planners."""
    return as_options(*(config.getoption(f"kv_{name}") for name in ("unpatched", "patched", "contract")))


def pair_of(config: pytest.Config) -> Pair:
    """The pair of planners of this test process, started on first use."""
    pair = config.stash.get(_PAIR, None)
    if pair is None:
        folder = read_config(Path.cwd())
        before = open_launch(config.getoption("kv_unpatched"), folder)
        after = open_launch(config.getoption("kv_patched"), folder)
        contract: Contract | None = config.getoption("kv_contract")
        pair = Pair(before, after, choose_contract(contract, after), case_seconds=CASE_SECONDS, memory=MEMORY_BYTES)
        config.stash[_PAIR] = pair
        pair.start()
    return pair


def pytest_unconfigure(config: pytest.Config) -> None:
    """Ends the planners."""
    pair = config.stash.get(_PAIR, None)
    if pair is not None:
        pair.close()


def check_case(pair: Pair, known: KnownFindings, case: Case, replay_arguments: str = "") -> Judged:
    """Keeps the case, asks both planners, and fails on a finding that is not known."""
    store = Store()
    kept = store.case_path(case_id(case)).is_file()
    path = store.keep_case(case)
    judged = pair.ask(case)
    new = [
        finding
        for finding in judged.verdict.findings
        if finding.verdict in FAILING and not known.covers(finding.fingerprint, finding.verdict)
    ]
    if new:
        pytest.fail(told(case, new, replay_arguments), pytrace=False)
    if not kept:
        path.unlink(missing_ok=True)
    return judged


def told(case: Case, findings: list[Finding], replay_arguments: str) -> str:
    """What a failing case says: each finding, the size of the case, and the line that asks it again."""
    lines = [
        f"{finding.verdict}: {finding.law} {finding.fingerprint}, {finding.planner} planner: {finding.summary}"
        for finding in findings
    ]
    lines.append(f"case {case_id(case)}: {len(case.layers)} layers of {len(case.specs)} specs, kept in .kvfuzz/cases")
    lines.append(f"kvfuzz replay {case_id(case)}{replay_arguments}")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def kv_pair(request: pytest.FixtureRequest) -> Pair:
    """Both planners of the command line, warm for the whole session."""
    return pair_of(request.config)


@pytest.fixture(scope="session")
def unpatched(kv_pair: Pair) -> Planner:
    """The planner to compare with."""
    return kv_pair.unpatched


@pytest.fixture(scope="session")
def patched(kv_pair: Pair) -> Planner:
    """The planner under test."""
    return kv_pair.patched


@pytest.fixture(scope="session")
def reference(kv_pair: Pair) -> Callable[[Case], Outcome | Unruled]:
    """What the reference expects of the planner under test, by case, under the contract under test."""
    rules = kv_pair.rulings()[1].rules

    def expected(case: Case) -> Outcome | Unruled:
        if rules is None:
            return Unruled(reason=f"no rule set for vLLM {kv_pair.patched.hello().version}")
        return expected_plan(case, rules, kv_pair.contract)

    return expected


@pytest.fixture(scope="session")
def kv_check(request: pytest.FixtureRequest, kv_pair: Pair) -> Check:
    """Asks both planners a case and fails the test on a finding that known.toml does not list."""
    known = read_known(corpus_folder() / "known.toml", datetime.date.today())

    def check(case: Case) -> Judged:
        return check_case(kv_pair, known, case, arguments(request.config))

    return check
