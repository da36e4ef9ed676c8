"""The generator's promises: valid, deterministic, within its vocabulary and shape, fast."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fuzz.strategies import Shape, Vocabulary, default_vocabulary, draw_case
from fuzz.strategies.layouts import resolvable_layouts
from oracles.case import (
    AttentionSpec,
    Case,
    MambaSpec,
    SlidingWindowSpec,
    case_id,
    check_case,
    dump_case,
    is_mixed,
    kind_of,
    load_case,
)
from oracles.geometry import stride_alignment

ROOT = Path(__file__).resolve().parents[2]


def drawn(count: int, shape: Shape | None = None, seed: int = 1) -> list[Case]:
    generator = random.Random(seed)
    return [draw_case(generator, shape) for _ in range(count)]


def digest(cases: list[Case]) -> str:
    return hashlib.sha256(" ".join(map(case_id, cases)).encode()).hexdigest()[:16]


def test_every_case_is_valid() -> None:
    for case in drawn(2_000):
        check_case(case)


def test_every_case_survives_its_file() -> None:
    for case in drawn(300):
        assert load_case(dump_case(case)) == case


def test_a_seed_gives_the_same_cases_twice() -> None:
    assert digest(drawn(200)) == digest(drawn(200))


def test_seeds_give_different_cases() -> None:
    assert digest(drawn(50, seed=1)) != digest(drawn(50, seed=2))


@pytest.mark.parametrize("hash_seed", ["0", "4242"])
def test_a_seed_gives_the_same_cases_under_another_hash_seed(hash_seed: str) -> None:
    code = (
        "import hashlib, random\n"
        "from fuzz.strategies import draw_case\n"
        "from oracles.case import case_id\n"
        "generator = random.Random(1)\n"
        "ids = ' '.join(case_id(draw_case(generator)) for _ in range(200))\n"
        "print(hashlib.sha256(ids.encode()).hexdigest()[:16])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(drawn(200))


def test_mixed_cases_are_mixed() -> None:
    assert all(map(is_mixed, drawn(1_000, Shape(modes="mixed"))))


def test_single_mode_cases_are_not_mixed() -> None:
    assert not any(map(is_mixed, drawn(1_000, Shape(modes="single"))))


def test_both_modes_are_common_by_default() -> None:
    share = sum(map(is_mixed, drawn(1_000))) / 1_000
    assert 0.3 < share < 0.6


def windows_split_by_dcp(case: Case) -> bool:
    return case.settings.dcp > 1 and any(isinstance(s, SlidingWindowSpec) and not s.replicated for s in case.specs)


def has_encoder_layers(case: Case) -> bool:
    return any(kind_of(spec) == "encoder_only" for spec in case.specs)


@pytest.mark.parametrize(
    ("documented_limit", "permission"),
    [
        (windows_split_by_dcp, Shape(sharded_windows=True)),
        (has_encoder_layers, Shape(encoder_only=True)),
    ],
)
def test_documented_limits_are_drawn_only_when_permitted(
    documented_limit: Callable[[Case], bool], permission: Shape
) -> None:
    assert not any(map(documented_limit, drawn(1_500)))
    assert any(map(documented_limit, drawn(1_500, permission)))


def test_a_state_has_the_cache_mode_of_its_case() -> None:
    for case in drawn(1_000):
        for spec in case.specs:
            if isinstance(spec, MambaSpec):
                assert spec.mamba_cache_mode == case.settings.mamba_mode


def test_a_state_without_a_cache_mode_covers_the_model_length() -> None:
    for case in drawn(1_000):
        if case.settings.mamba_mode == "none":
            states = [spec for spec in case.specs if isinstance(spec, MambaSpec)]
            assert all(spec.block_size >= case.settings.model_len for spec in states)


def test_only_layouts_that_the_guard_refuses_are_forced() -> None:
    for case in drawn(1_000):
        if case.specs:
            accepted = case.settings.layout in resolvable_layouts(case.specs)
            assert accepted is (case.settings.layout_origin == "resolved")


def test_a_stride_in_kernel_blocks_holds_a_state() -> None:
    assert all(stride_alignment(spec) >= 1 for case in drawn(2_000) for spec in case.specs)


def test_a_draft_and_the_speculative_settings_belong_together() -> None:
    for case in drawn(1_000):
        if any(layer.draft for layer in case.layers):
            assert case.settings.speculative is not None
            assert case.settings.speculative.method not in ("ngram", "extract_hidden_states")


def old_vocabulary() -> Vocabulary:
    """What a release before layouts and replication says: no ``replicated``, no strides, no role."""
    gone = {"replicated", "block_stride_alignment", "cache_role", "max_tp_shards", "bounded_replay"}
    fields = {kind: names - gone for kind, names in default_vocabulary().fields.items() if kind != "circular_buffer"}
    return Vocabulary(
        fields=fields, layouts=False, fractions=False, multiple_of=False, quant_modes=("NONE", "FP8_PER_TENSOR")
    )


def test_no_case_leaves_its_vocabulary() -> None:
    vocabulary = old_vocabulary()
    for case in drawn(1_500, Shape(vocabulary=vocabulary)):
        for spec in case.specs:
            stated = msgspec.to_builtins(spec)
            assert set(stated) - {"kind", "block_size"} <= vocabulary.fields[kind_of(spec)]
            assert not isinstance(stated.get("tokens_per_state", 1), str)
        assert case.settings.layout == "LBNHC"
        assert not is_mixed(case)


def test_the_default_vocabulary_leaves_out_what_only_the_newest_release_knows() -> None:
    assert not default_vocabulary().knows("mla", "topk_buffer_width")


def test_max_layers_bounds_the_target() -> None:
    for case in drawn(500, Shape(max_layers=6)):
        assert sum(not layer.draft for layer in case.layers) <= 6


def test_replicated_drafts_stand_beside_sharded_targets_mostly_but_not_only() -> None:
    split = [case for case in drawn(3_000) if case.settings.dcp > 1]
    drafts = [spec for case in split for spec in {case.specs[y.spec] for y in case.layers if y.draft}]
    share = sum(isinstance(spec, AttentionSpec) and spec.replicated for spec in drafts) / len(drafts)
    assert 0.5 < share < 0.95
