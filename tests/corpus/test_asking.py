"""The checker that the corpus tests use for placement sees what it is there to see."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from oracles.case import Case, FullSpec, Layer, Settings, SlidingWindowSpec, build_case
from oracles.plan import Group, Placement, Plan, Record
from tests.corpus.asking import placement_faults

FULL = FullSpec(block_size=16, num_kv_heads=1, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=1, head_size=64, sliding_window=64)
CASE = build_case(
    [(Layer(name=name, spec=0), spec) for name, spec in (("a", FULL), ("b", FULL), ("c", WINDOW))], Settings()
)


def group(at: int, *layers: str) -> Group:
    return Group(layers=layers, block_size=16, page_bytes=4096, span_tokens=16, kind=("full", "window")[at], spec=at)


def placed(*records: Record) -> Plan:
    """Two groups, pages of 4,096 bytes, four blocks."""
    pool = Placement(num_blocks=4, records=records, group_layers=(("a", "b"), ("c",)))
    return Plan(specs=(FULL, WINDOW), groups=(group(0, "a", "b"), group(1, "c")), placement=(pool,))


SIZE = 2 * 4 * 4096
TARGET = Record(size=SIZE, layers=("a", "b"), block_stride=8192, layer_stride=4096)
OTHER = Record(size=SIZE, layers=("c",), block_stride=8192)


def test_two_groups_over_the_same_blocks_are_sound() -> None:
    assert placement_faults(CASE, placed(TARGET, OTHER)) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda: placed(TARGET), "stage 0: 2 layers placed, 3 belong here"),
        (lambda: placed(TARGET, OTHER, OTHER), "stage 0: 4 layers placed, 3 belong here"),
        (lambda: placed(structs.replace(TARGET, layer_stride=0), OTHER), "stage 0: a block 0 overlaps b block 0"),
        (
            lambda: placed(TARGET, structs.replace(OTHER, block_stride=4096)),
            "stage 0: a block 1 overlaps c block 2",
        ),
        (lambda: placed(TARGET, structs.replace(OTHER, offset=8192)), "stage 0: c: block 3 ends 4096 bytes late"),
    ],
)
def test_a_planted_fault_is_seen(change: Callable[[], Plan], fault: str) -> None:
    assert fault in placement_faults(CASE, change())


def test_a_page_below_its_content_is_seen() -> None:
    wide = structs.replace(FULL, head_size=128)
    case: Case = build_case(
        [(Layer(name=name, spec=0), spec) for name, spec in (("a", FULL), ("b", wide), ("c", WINDOW))], Settings()
    )
    assert placement_faults(case, placed(TARGET, OTHER)) == ["stage 0: b: content of 8192 bytes in a page of 4096"]
