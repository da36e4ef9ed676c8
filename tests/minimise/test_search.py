"""The search ends at the exact least case, whatever it began with, and says when it cannot begin."""

from __future__ import annotations

import pytest
from msgspec import structs

from fuzz.minimise import NotShown, Unstable, minimise
from oracles.case import (
    Case,
    FullSpec,
    Layer,
    MambaSpec,
    Settings,
    SlidingWindowSpec,
    Spec,
    Speculative,
    Worker,
    build_case,
    dump_case,
)
from oracles.compare import Finding
from tests.minimise.fakes import FINGERPRINT, fake_pair, finding

FULL = FullSpec(block_size=48, num_kv_heads=3, head_size=80, page_size_padded=2**16)
WINDOW = SlidingWindowSpec(block_size=48, num_kv_heads=5, head_size=96, sliding_window=1000)
STATE = MambaSpec(block_size=64, shapes=((7, 9), (3,)), dtypes=("float32", "float32"))


def model() -> Case:
    """Nineteen layers of three kinds on two stages, with a draft."""
    rows: list[tuple[Layer, Spec]] = [
        (Layer(name=f"model.layers.{at}", spec=0, stage=at // 10, draft=at > 17), (FULL, WINDOW, STATE)[at % 3])
        for at in range(19)
    ]
    settings = Settings(
        workers=(Worker(memory=12345678), Worker(memory=87654321, stage=1)), model_len=5000, tp=4,
        speculative=Speculative(method="mtp", tokens=3),
    )  # fmt: skip
    return build_case(rows, settings)


def kinds(case: Case) -> set[type]:
    return {type(case.specs[layer.spec]) for layer in case.layers}


def two_kinds(case: Case) -> Finding | None:
    """A fault of full layers beside windowed ones."""
    return finding() if {FullSpec, SlidingWindowSpec} <= kinds(case) else None


LEAST = b"""{
 "format": 1,
 "layers": [
  {"name":"t.0","spec":0},
  {"name":"t.1","spec":1}
 ],
 "specs": [
  {"block_size":16,"head_size":64,"kind":"full","num_kv_heads":1},
  {"block_size":16,"head_size":64,"kind":"sliding_window","num_kv_heads":1,"sliding_window":128}
 ]
}
"""


def test_a_fault_of_two_kinds_ends_at_two_plain_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = fake_pair(monkeypatch, two_kinds)
    assert dump_case(minimise(pair, model(), FINGERPRINT).case) == LEAST


def test_the_end_does_not_depend_on_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    other = build_case(
        [(Layer(name="b", spec=0), WINDOW), (Layer(name="a", spec=0, draft=True), FULL)], Settings(dcp=8, tp=8)
    )
    pair, _ = fake_pair(monkeypatch, lambda c: two_kinds(c))
    assert dump_case(minimise(pair, other, FINGERPRINT).case) == LEAST


def test_a_number_ends_at_the_plainest_that_keeps_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide(case: Case) -> Finding | None:
        return finding() if any(isinstance(s, FullSpec) and s.block_size >= 40 for s in case.specs) else None

    pair, _ = fake_pair(monkeypatch, wide)
    least = minimise(pair, model(), FINGERPRINT)
    assert [spec.block_size for spec in least.case.specs] == [64]
    assert least.neighbour is not None
    assert least.neighbour.words == "block_size 32 instead of 64 in t.0"


def test_a_count_is_lowered_to_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    def many(case: Case) -> Finding | None:
        windows = [x for x in case.layers if isinstance(case.specs[x.spec], SlidingWindowSpec)]
        return finding() if len(windows) >= 5 else None

    pair, _ = fake_pair(monkeypatch, many)
    assert len(minimise(pair, model(), FINGERPRINT).case.layers) == 5


def test_two_fields_that_must_move_together_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(case: Case) -> Finding | None:
        blocks = [s.block_size for s in case.specs if not isinstance(s, MambaSpec)]
        return finding() if len(blocks) == 2 and blocks[0] == blocks[1] and two_kinds(case) else None

    pair, _ = fake_pair(monkeypatch, equal)
    least = minimise(pair, model(), FINGERPRINT).case
    assert [spec.block_size for spec in least.specs] == [16, 16]


def test_another_finding_of_the_same_case_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    def changes_below_three(case: Case) -> Finding | None:
        return finding() if len(case.layers) >= 3 else finding(fingerprint="ffffffff")

    pair, _ = fake_pair(monkeypatch, changes_below_three)
    assert len(minimise(pair, model(), FINGERPRINT).case.layers) == 3


def test_a_regression_does_not_end_as_a_fault_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def both_when_small(case: Case) -> Finding | None:
        return finding("regression" if len(case.layers) >= 4 else "unfixed")

    pair, _ = fake_pair(monkeypatch, both_when_small)
    least = minimise(pair, model(), FINGERPRINT)
    assert (len(least.case.layers), least.finding.verdict) == (4, "regression")


def test_a_case_without_the_finding_is_not_minimised(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = fake_pair(monkeypatch, lambda _: None)
    with pytest.raises(NotShown, match="does not show 0123abcd"):
        minimise(pair, model(), FINGERPRINT)


def test_a_case_that_shows_it_now_and_then_is_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([finding(), None, finding()])
    pair, _ = fake_pair(monkeypatch, lambda _: next(answers))
    with pytest.raises(Unstable, match="2 of 3 runs"):
        minimise(pair, model(), FINGERPRINT)


def test_no_case_is_asked_twice_while_searching(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, fake = fake_pair(monkeypatch, two_kinds)
    least = minimise(pair, model(), FINGERPRINT)
    begun, ended = 3, 3  # runs before and after the search
    searched = fake.asked[begun:]
    searched = searched[: next(at for at in range(len(searched)) if searched[at : at + ended] == [least.case] * ended)]
    assert len(searched) == len(set(map(dump_case, searched)))


def test_time_ends_the_search_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = fake_pair(monkeypatch, two_kinds)
    least = minimise(pair, model(), FINGERPRINT, seconds=0.0)
    assert not least.complete
    assert least.case == model()


def test_the_search_stays_out_of_what_vllm_documents_as_not_working(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_window(case: Case) -> Finding | None:
        return finding() if case.settings.dcp > 1 and SlidingWindowSpec in kinds(case) else None

    whole = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128, replicated=True)
    case = build_case([(Layer(name="t.0", spec=0), whole)], Settings(dcp=4))
    pair, _ = fake_pair(monkeypatch, any_window)
    (spec,) = minimise(pair, case, FINGERPRINT).case.specs
    assert isinstance(spec, SlidingWindowSpec)
    assert spec.replicated


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_fault_between_modes_keeps_the_ranks_that_give_a_mode_its_meaning(
    monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    def two_modes(case: Case) -> Finding | None:
        return finding() if {getattr(s, "replicated", False) for s in case.specs} == {False, True} else None

    rows: list[tuple[Layer, Spec]] = [
        (Layer(name="t", spec=0), FULL),
        (Layer(name="d", spec=0, draft=True), structs.replace(WINDOW, replicated=True)),
    ]
    pair, _ = fake_pair(monkeypatch, two_modes)
    least = minimise(pair, build_case(rows, Settings(dcp=ranks, tp=8)), FINGERPRINT).case
    assert (len(least.layers), least.settings) == (2, Settings(dcp=2))


def test_a_fault_that_only_happens_to_meet_a_replicated_layer_ends_on_one_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def any_window(case: Case) -> Finding | None:
        return finding() if SlidingWindowSpec in kinds(case) else None

    case = build_case(
        [(Layer(name="d", spec=0, draft=True), structs.replace(WINDOW, replicated=True))], Settings(dcp=8, tp=8)
    )
    pair, _ = fake_pair(monkeypatch, any_window)
    (spec,) = (least := minimise(pair, case, FINGERPRINT).case).specs
    assert (getattr(spec, "replicated", True), least.settings) == (False, Settings())
