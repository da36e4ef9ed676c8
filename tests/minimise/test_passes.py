"""Each pass offers what its docstring says."""

from __future__ import annotations

import pytest

from fuzz.minimise import fields, layers
from fuzz.minimise.order import order_key, value_rank
from fuzz.minimise.search import PASSES
from oracles.case import (
    Case,
    FullSpec,
    Layer,
    MambaSpec,
    Settings,
    SinkSpec,
    SlidingWindowSpec,
    Spec,
    Worker,
    build_case,
    dump_case,
)

FULL = FullSpec(block_size=16, num_kv_heads=1, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=128)


def of(*specs: Spec, settings: Settings | None = None) -> Case:
    rows: list[tuple[Layer, Spec]] = [(Layer(name=f"x.{at}", spec=0), spec) for at, spec in enumerate(specs)]
    return build_case(rows, settings or Settings())


def names(cases: list[Case]) -> list[str]:
    return ["".join(layer.name[-1] for layer in case.layers) for case in cases]


def test_runs_are_dropped_by_halves_quarters_and_one_by_one() -> None:
    offered = names(list(layers.drop_layers(of(FULL, FULL, FULL, FULL))))
    assert offered == ["23", "01", "123", "023", "013", "012"]


def test_sketches_keep_one_layer_of_each_class() -> None:
    assert names(list(layers.sketches(of(FULL, WINDOW, FULL)))) == ["0", "1", "01"]


def test_counts_fall_to_one_first() -> None:
    assert names(list(layers.lower_counts(of(FULL, FULL, FULL, FULL))))[0] == "0"


def test_stages_are_joined() -> None:
    rows: list[tuple[Layer, Spec]] = [(Layer(name=f"x.{at}", spec=0, stage=at), FULL) for at in range(2)]
    case = build_case(rows, Settings(workers=(Worker(memory=1), Worker(memory=2, stage=1))))
    first = next(layers.drop_stages(case))
    assert [layer.stage for layer in first.layers] == [0, 0]
    assert first.settings.workers == (Worker(memory=1),)


def test_names_become_short_and_tell_the_draft() -> None:
    rows: list[tuple[Layer, Spec]] = [
        (Layer(name="model.layers.7", spec=0), FULL),
        (Layer(name="mtp.0", spec=0, draft=True), FULL),
    ]
    renamed = next(layers.rename_layers(build_case(rows, Settings())))
    assert [layer.name for layer in renamed.layers] == ["t.0", "d.0"]


def test_all_settings_fall_to_their_defaults_at_once() -> None:
    case = of(FULL, settings=Settings(dcp=4, tp=4, model_len=100, workers=(Worker(memory=5),)))
    assert next(fields.default_settings(case)).settings == Settings()


def test_all_optional_fields_fall_to_their_defaults_but_the_mode() -> None:
    padded = FullSpec(block_size=16, num_kv_heads=1, head_size=64, page_size_padded=9999, replicated=True)
    (spec,) = next(fields.default_fields(of(padded))).specs
    assert spec == FullSpec(block_size=16, num_kv_heads=1, head_size=64, replicated=True)


def test_a_rare_kind_is_offered_as_a_common_one() -> None:
    sink = SinkSpec(block_size=32, num_kv_heads=2, head_size=64, sink_len=4)
    first = next(fields.plainer_kinds(of(sink)))
    assert first.specs == (FullSpec(block_size=32, num_kv_heads=2, head_size=64),)


def test_tensors_of_a_state_become_one_of_the_same_bytes() -> None:
    state = MambaSpec(block_size=16, shapes=((4, 8), (2,)), dtypes=("float32", "float16"))
    (spec,) = next(fields.plainer_states(of(state))).specs
    assert spec == MambaSpec(block_size=16, shapes=((66,),), dtypes=("bfloat16",))


def test_a_number_is_tried_at_friendly_values_first() -> None:
    assert list(fields.plainer("block_size", 48))[:5] == [16, 32, 64, 128, 256]


def test_no_number_is_offered_that_is_less_plain() -> None:
    for value in (1, 7, 48, 1000, 65537):
        rank = value_rank("page_size_padded", value)
        assert all(value_rank("page_size_padded", one) < rank for one in fields.plainer("page_size_padded", value))


def test_fewer_layers_come_before_fewer_specs_before_plainer_fields() -> None:
    padded = FullSpec(block_size=16, num_kv_heads=1, head_size=64, page_size_padded=4096 * 3)
    ordered = [of(FULL), of(padded), of(FULL, FULL), of(FULL, WINDOW)]
    assert sorted(ordered, key=order_key) == ordered


def test_the_order_is_total() -> None:
    cases = [of(FULL), of(WINDOW), of(FULL, WINDOW), of(WINDOW, FULL)]
    assert len({order_key(case) for case in cases}) == len({dump_case(case) for case in cases}) == 4


@pytest.mark.parametrize(("name", "one"), PASSES, ids=[name for name, _ in PASSES])
def test_a_model_without_layers_is_offered_nothing_with_layers(name: str, one: fields.Pass) -> None:
    assert not [case for case in one(build_case([], Settings(dcp=4))) if case.layers]


def test_memory_falls_with_the_layers_that_fill_it() -> None:
    case = of(FULL, FULL, FULL, FULL, settings=Settings(workers=(Worker(memory=4 * 2**20),)))
    first = next(fields.memory_in_proportion(case))
    assert (len(first.layers), first.settings.workers[0].memory) == (1, 2**20)


def test_fitted_memory_holds_a_power_of_two_of_blocks_or_one_more() -> None:
    page = 16 * 64 * 2 * 2
    offered = {case.settings.workers[0].memory for case in fields.fitted_memory(of(FULL))}
    assert {page, 512 * page, 513 * page} <= offered
    assert 514 * page not in offered
