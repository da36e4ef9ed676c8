"""What the catalogue offers: less than the best, least first, and the same from every beginning."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec import structs

from fuzz.minimise.catalogue import COMMON, MOST, catalogue
from fuzz.minimise.order import order_key
from fuzz.minimise.palette import aside, settings_like, specs_of
from oracles.case import Case, FullSpec, Layer, MambaSpec, Settings, SlidingWindowSpec, Worker, build_case

FULL = FullSpec(block_size=48, num_kv_heads=5, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=80, sliding_window=100)
ODD = build_case(
    [(Layer(name="a", spec=0), FULL), (Layer(name="b", spec=0), WINDOW)],
    Settings(layout="BLNHC", prefix_match_unit=7, workers=(Worker(memory=3 * 2**20),)),
)


def test_every_case_is_less_than_the_best_and_within_the_numbers_allowed() -> None:
    offered = list(catalogue(ODD, order_key(ODD)))
    assert all(order_key(case) < order_key(ODD) for case in offered)
    for count, most in MOST.items():
        assert 0 < sum(len(case.layers) == count for case in offered) <= most


def test_cases_of_as_many_layers_come_least_first() -> None:
    keys = [order_key(case) for case in catalogue(ODD, order_key(ODD))]
    assert all(a <= b for a, b in pairwise(keys))


def test_two_beginnings_of_one_shape_are_offered_the_same() -> None:
    other = build_case(
        [(Layer(name="x", spec=0), structs.replace(WINDOW, head_size=96)), (Layer(name="y", spec=0), FULL)],
        ODD.settings,
    )
    below = max(order_key(ODD), order_key(other))
    assert list(catalogue(ODD, below)) == list(catalogue(other, below))


def test_a_model_without_layers_is_offered_nothing() -> None:
    empty = Case(specs=(), layers=())
    assert list(catalogue(empty, order_key(empty))) == []


@pytest.mark.parametrize("kind", COMMON)
def test_specs_differ_from_the_plainest_in_as_many_fields_as_they_took_steps(kind: str) -> None:
    plain, *others = specs_of(kind, False, 2)
    assert plain.steps == 0
    for one in others:
        changed = [f for f in one.value.__struct_fields__ if getattr(one.value, f) != getattr(plain.value, f)]
        assert len(changed) == one.steps


def test_what_the_best_case_has_changed_is_no_step() -> None:
    offered = {one.value: one.steps for one in settings_like(ODD.settings)}
    assert offered[Settings(prefix_match_unit=7)] == 0
    assert offered[Settings(prefix_match_unit=32)] == 0
    assert offered[Settings(workers=(Worker(memory=2**22),))] == 0
    assert offered[Settings(hybrid_manager=False)] == 1


def test_a_recurrent_layer_holds_a_whole_request_in_one_block() -> None:
    recurrent = [
        case for case in catalogue(ODD, order_key(ODD)) if any(isinstance(spec, MambaSpec) for spec in case.specs)
    ]
    assert recurrent
    for case in recurrent:
        assert case.settings.model_len <= min(s.block_size for s in case.specs if isinstance(s, MambaSpec))


def test_a_value_aside_may_be_less_plain() -> None:
    assert any(case.specs[1].block_size == 32 for case in aside(ODD))
