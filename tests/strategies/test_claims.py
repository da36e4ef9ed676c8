"""Feature tuples: three thousand cases of one seed reach everything that is claimed."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from fuzz.strategies import draw_case
from fuzz.strategies.claims import claimed, count_pairs, missing
from fuzz.strategies.features import Features, features
from oracles.case import Case, FullSpec, Layer, MlaSpec, Settings, SlidingWindowSpec, Spec, Worker, build_case

FULL = FullSpec(block_size=16, num_kv_heads=1, head_size=64)
MLA = MlaSpec(block_size=64, num_kv_heads=1, head_size=576)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=2048, replicated=True)
FULL_PAGE = 4096


@pytest.fixture(scope="module")
def seen() -> list[Features]:
    generator = random.Random(1)
    return [features(draw_case(generator)) for _ in range(3_000)]


def test_every_claimed_pair_is_reached(seen: list[Features]) -> None:
    assert missing(seen) == ()


def test_the_claim_is_finite_and_without_doubles() -> None:
    assert len(claimed()) == len(set(claimed())) > 400


def test_nothing_claimed_is_missing_from_what_is_counted(seen: list[Features]) -> None:
    counts = count_pairs(seen)
    assert min(counts[pair] for pair in claimed()) >= 1


def test_cases_are_varied(seen: list[Features]) -> None:
    assert len(set(seen)) > 2_000


def case_of(*layers: tuple[Spec, bool, int], settings: Settings | None = None) -> Case:
    pairs = [
        (Layer(name=f"layer.{at}", spec=0, draft=draft, stage=stage), spec)
        for at, (spec, draft, stage) in enumerate(layers)
    ]
    return build_case(pairs, settings or Settings())


def test_features_of_a_sharded_target_with_a_replicated_draft() -> None:
    case = case_of((MLA, False, 0), (MLA, False, 0), (WINDOW, True, 0), settings=Settings(dcp=4, layout="BLHNC"))
    assert features(case) == Features(
        target=("mla",), draft=("sliding_window",), modes="mixed", pages="uneven", layout="block_outer", forced=False,
        pipeline="one_stage", dcp=True, branch="packed",
    )  # fmt: skip


def other(**fields: object) -> FullSpec:
    return FullSpec(**{"block_size": 16, "num_kv_heads": 1, "head_size": 64, "dtype": "float16", **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "relation"),
    [
        (other(), "equal"),
        (other(block_size=8), "divides"),
        (other(block_size=32), "multiple"),
        (other(page_size_padded=FULL_PAGE + 1), "byte_off"),
        (other(block_size=15), "token_off"),
        (other(block_size=15, page_size_padded=FULL_PAGE), "padded"),
        (other(block_size=13), "uneven"),
    ],
)
def test_page_relations(spec: FullSpec, relation: str) -> None:
    assert features(case_of((FULL, False, 0), (spec, True, 0))).pages == relation


def workers(stages: Iterable[int]) -> Settings:
    return Settings(workers=tuple(Worker(memory=2**30, stage=stage) for stage in stages))


@pytest.mark.parametrize(
    ("layers", "stages", "shape"),
    [
        ([(FULL, False, 0)], 1, "one_stage"),
        ([(FULL, False, 0), (FULL, False, 1)], 2, "even"),
        ([(FULL, False, 0), (MLA, False, 1)], 2, "lacks_kind"),
        ([(FULL, False, 0), (FULL, True, 1)], 2, "draft_alone"),
        ([(FULL, False, 0), (FULL, False, 2)], 3, "empty_stage"),
    ],
)
def test_pipeline_shapes(layers: list[tuple[Spec, bool, int]], stages: int, shape: str) -> None:
    assert features(case_of(*layers, settings=workers(range(stages)))).pipeline == shape
