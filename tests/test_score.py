"""The score: what mutants say of themselves, how trials are counted, and that planted defects are found."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import pytest

from fuzz.known import KnownFindings
from fuzz.planners.process import Planner
from fuzz.score.mutants import Mutant, MutantError, read_mutant, read_mutants
from fuzz.score.naive import draw_naive
from fuzz.score.rates import Shown, cases_to_first, rate_mutants, summarise_rates
from fuzz.score.run import Setting, Tried, planner_of, try_mutants
from fuzz.score.streams import Oracle, Strategy
from fuzz.score.summary import Median, Score, summarise
from fuzz.score.trial import Detection, Trial
from fuzz.strategies import Shape
from oracles.case import case_id, check_case

MUTANTS = Path(__file__).parent / "mutants"
NOTHING_KNOWN = KnownFindings([])

HEADER = '''"""Groups come in the wrong order."""

BASE = "isolate"
KIND = "silent"
REPORT = "https://example.org/1"
SEEN_BY = ("G6",)


def apply(planner):
    raise SystemExit("a mutant is read, not run")
'''


def written(folder: Path, text: str) -> Path:
    path = folder / "wrong_order.py"
    path.write_text(text)
    return path


def test_a_mutant_is_read_without_being_run(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER)
    assert read_mutant(path) == Mutant(
        name="wrong_order", path=str(path), summary="Groups come in the wrong order.", base="isolate", kind="silent",
        report="https://example.org/1", seen_by=("G6",),
    )  # fmt: skip
    assert read_mutant(path).address == f"installed+isolate+{path}"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('BASE = "isolate"', "", "BASE: missing; add it at the top"),
        ('BASE = "isolate"', 'BASE = "both"', "BASE: "),
        ('KIND = "silent"', 'KIND = "quiet"', "KIND: "),
        ('("G6",)', "tuple(open('x'))", "SEEN_BY: is not a literal"),
        ("def apply", "def run", "apply: missing"),
        ('"""Groups come in the wrong order."""', "", "docstring: missing"),
        ("def apply", "def apply(", "not readable as Python"),
    ],
)
def test_a_bad_header_names_the_file_and_the_constant(tmp_path: Path, before: str, after: str, message: str) -> None:
    path = written(tmp_path, HEADER.replace(before, after))
    with pytest.raises(MutantError) as caught:
        read_mutant(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_an_unknown_mutant_is_refused_by_name() -> None:
    with pytest.raises(MutantError, match="--only no_such_thing: no such mutant"):
        read_mutants(MUTANTS, ["no_such_thing"])


def test_there_are_enough_mutants_of_each_kind() -> None:
    kinds = [mutant.kind for mutant in read_mutants(MUTANTS)]
    assert len(kinds) - kinds.count("equivalent") >= 40
    assert kinds.count("silent") >= 10
    assert kinds.count("equivalent") >= 3


def test_naive_cases_are_valid_and_the_same_for_the_same_seed() -> None:
    drawn = [draw_naive(random.Random(f"{at}"), Shape()) for at in range(200)]
    for case in drawn:
        check_case(case)
    again = [draw_naive(random.Random(f"{at}"), Shape()) for at in range(200)]
    assert [case_id(case) for case in again] == [case_id(case) for case in drawn]
    assert {layer.stage for case in drawn for layer in case.layers} == {0, 1, 2, 3}


def trial(seed: int, cases: int, found: dict[Oracle, int], strategy: Strategy = "kvfuzz") -> Trial:
    return Trial(
        strategy=strategy,
        seed=seed, cases=cases, seconds=cases / 100, reached=1, triggered=1,
        detected={name: Detection(cases=at, seconds=at / 100, by=("G6",)) for name, at in found.items()},
    )  # fmt: skip


def scored(name: str, kind: Literal["loud", "silent", "equivalent"], trials: list[Trial]) -> Tried:
    mutant = Mutant(name=name, path="", summary="", base="native", kind=kind, report="", seen_by=("G6",))
    return Tried(mutant=mutant, trials=tuple(trials))


def summary(*tried: Tried, seeds: int = 5) -> Score:
    return summarise(tried, Setting(seeds=tuple(range(seeds)), seconds=60.0))


def test_a_mutant_found_in_four_of_five_seeds_is_detected_and_in_three_survives() -> None:
    four = [trial(seed, 9, {"all": 3 + seed} if seed else {}) for seed in range(5)]
    three = [trial(seed, 9, {"all": 3} if seed > 1 else {}) for seed in range(5)]
    found = summary(scored("four", "silent", four), scored("three", "silent", three))
    assert (found.score, found.detected, found.survivors) == (0.5, 1, ("three",))
    assert [one.name for one in found.scores] == ["three", "four"]
    assert found.scores[1].cases == Median(value=6)


def test_an_equivalent_mutant_that_is_reported_is_told_and_not_counted() -> None:
    found = summary(scored("same", "equivalent", [trial(0, 9, {"all": 9})]), seeds=1)
    assert (found.score, found.mutants, found.equivalents_reported) == (1.0, 0, ("same",))


def test_a_mutant_that_cannot_start_is_an_error_and_no_survivor() -> None:
    found = summary(Tried(mutant=scored("gone", "silent", []).mutant, error="no such module"))
    assert (found.errors, found.survivors, found.mutants) == (("gone",), (), 0)


def test_ratios_count_what_was_not_found_as_at_least_the_cases_asked() -> None:
    trials = [trial(0, 40, {"all": 4, "no laws": 8}), trial(0, 60, {}, strategy="naive")]
    ratios = {row.name: row for row in summary(scored("one", "silent", trials), seeds=1).ratios}
    assert ratios["no laws"].times == Median(value=2.0)
    assert ratios["naive strategy"].times == Median(value=15.0, at_least=True)
    assert (ratios["naive strategy"].detected, ratios["naive strategy"].mutants) == (0, 1)


def setting(seconds: float = 60.0, cases: int | None = None) -> Setting:
    return Setting(seeds=(1,), seconds=seconds, cases=cases, compare=False)


def shown(name: str, ours: int, naive: int, kind: str = "silent") -> Shown:
    return Shown(name=name, kind=kind, shown={"kvfuzz": ours, "naive": naive})


def test_rates_compare_shares_and_what_naive_never_shows_counts_as_shown_once() -> None:
    rates = summarise_rates([shown("a", 20, 5), shown("b", 1, 0), shown("c", 0, 0), shown("d", 9, 3)], (1, 2), 50)
    assert rates.cases == 100
    assert rates.times.median == 2.0  # of 4, 1, 0 and 3
    assert (rates.rare, rates.never) == ({"kvfuzz": 2, "naive": 2}, {"kvfuzz": 1, "naive": 2})
    assert [one.name for one in rates.mutants] == ["c", "b", "d", "a"]


def test_rates_leave_out_equivalent_mutants_and_those_that_did_not_start() -> None:
    broken = Shown(name="b", kind="loud", shown={}, error="it does not start")
    rates = summarise_rates([shown("a", 50, 10), broken, shown("c", 0, 0, "equivalent")], (1,), 100)
    assert (rates.times.median, rates.never["kvfuzz"]) == (5.0, 0)
    assert len(rates.mutants) == 3


def test_the_first_detection_is_awaited_as_long_as_the_share_implies() -> None:
    assert cases_to_first(0.5) == 1
    assert cases_to_first(1.0) == 1
    assert round(cases_to_first(0.01)) == 69


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_mutant_that_some_cases_show_and_one_that_none_does() -> None:
    mutants = read_mutants(MUTANTS, ["null_block_forgotten", "same_flag_of_any_member"])
    heard: list[Shown] = []
    found, silent = rate_mutants(mutants, (1,), 60, NOTHING_KNOWN, heard.append)
    assert [one.name for one in heard] == ["null_block_forgotten", "same_flag_of_any_member"]
    assert 0 < found.shown["kvfuzz"] < 60
    assert set(silent.shown.values()) == {0}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_loud_a_silent_and_an_equivalent_mutant_are_judged_rightly() -> None:
    chosen = read_mutants(MUTANTS, ["hidden_states_dropped", "null_block_forgotten", "same_flag_of_any_member"])
    loud, silent, equivalent = try_mutants(chosen, setting(cases=300), NOTHING_KNOWN, lambda _: None)
    assert "G1" in loud.trials[0].detected["all"].by
    assert "C1" in silent.trials[0].detected["all"].by
    assert equivalent.trials[0].reached is not None
    assert (equivalent.trials[0].triggered, equivalent.trials[0].detected) == (None, {})


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_mutant_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, HEADER)
    (tried,) = try_mutants(read_mutants(tmp_path), setting(cases=1), NOTHING_KNOWN, lambda _: None)
    assert "wrong_order.py" in tried.error
    assert tried.trials == ()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_mutant_starts_in_a_worker() -> None:
    for first in range(0, len(chosen := read_mutants(MUTANTS)), 2):
        planners: list[Planner] = [planner_of(mutant) for mutant in chosen[first : first + 2]]
        try:
            for future in [planner.start() for planner in planners]:
                assert future.result().generation == "packed"
        finally:
            for planner in planners:
                planner.close()


GATE = (
    "contiguous_dealing", "draft_mark_per_part", "flag_dropped_in_merge", "latent_page_padded", "mamba_span_scaled",
    "null_block_forgotten", "one_block_too_many", "partition_dropped", "parts_in_wrong_order", "wrapper_not_projected",
)  # fmt: skip
"""One of each family, all found within some dozens of cases."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_gate_of_ten_mutants_at_a_fixed_seed_is_passed() -> None:
    tried = try_mutants(read_mutants(MUTANTS, GATE), setting(), NOTHING_KNOWN, lambda _: None)
    found = summarise(tried, setting())
    assert (found.errors, found.survivors, found.score) == ((), (), 1.0)
