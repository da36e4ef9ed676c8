"""Which rules judge a tree: its release's, or those that its answers fit best."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.pair import Pair
from fuzz.planners.process import Planner
from fuzz.planners.trees import Config, open_launch
from fuzz.ruling import Ruling, by_answers, ruling_beside, ruling_of
from oracles.reference import RULE_SETS
from tests.forks import branch, vllm_repository
from tests.models import dense

OLDER = [f"pypi:0.{minor}.0" for minor in (26, 27, 28, 29, 30, 31, 33)]


@pytest.mark.parametrize("address", ["installed", *(pytest.param(one, marks=pytest.mark.slow) for one in OLDER)])
def test_the_answers_of_a_release_fit_its_own_rules_best(address: str) -> None:
    with Planner(open_launch(address, Config())) as planner:
        named, found = ruling_of(planner), by_answers(planner)
    assert (named.asked, named.words) == (0, "")
    assert named.rules is not None
    assert found.rules == named.rules
    assert found.words.startswith(f"judged by the rules of {named.rules.name}, which {found.fits} of {found.asked} ")


def test_rules_that_expect_too_little_are_none(monkeypatch: pytest.MonkeyPatch, unpatched: Planner) -> None:
    monkeypatch.setattr("fuzz.ruling.LEAST", 0.95)
    assert by_answers(unpatched) == Ruling(rules=None)
    assert by_answers(unpatched).words == "no rule set fits: judged by the laws and the comparison alone"


@pytest.mark.slow
def test_a_branch_of_a_checkout_that_was_never_built_is_judged_by_the_rules_of_its_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fork").mkdir()
    fork = vllm_repository(tmp_path / "fork")
    branch(fork, "mine", lambda text: f"{text}\n# mine\n")
    monkeypatch.setenv("KVFUZZ_CACHE", str(tmp_path / "cache"))
    before, after = (open_launch(f"git:{fork}@{name}", Config()) for name in ("main", "mine"))
    pair = Pair(before, after, "native", case_seconds=20.0, memory=2**30)
    try:
        first, second = pair.start()
        assert (first.version, second.version) == ("dev", "dev")
        judged = pair.ask(dense()).verdict
        assert [(one.law, one.verdict) for one in judged.findings] == [("C3", "unfixed")], "the reference agrees"
        rulings = pair.rulings()
        assert [one.rules for one in rulings] == [RULE_SETS["0.32"]] * 2
        assert rulings[0] == rulings[1] == ruling_beside(pair.patched, pair.unpatched)
        assert [one.rules for one in pair.infos()] == [one.words for one in rulings]
        assert all(one.rules for one in pair.infos())
    finally:
        pair.close()
