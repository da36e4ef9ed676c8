"""Geometry of drawings, written out by hand, and the SVG made of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from msgspec import structs

from fuzz.report.drawing import MAX_LAYERS, Pool, draw, shown_blocks
from fuzz.report.svg import names_of, pool_svg
from oracles.case import Case, FullSpec, MambaSpec, Settings, Spec, Worker, build_case
from oracles.plan import Group, Placement, Plan, Record
from tests.models import layers

PAGE = FullSpec(block_size=16, num_kv_heads=1, head_size=16)
"""A page of 16 × 32 × 2 bytes, that is 1,024."""

DRAFT = structs.replace(PAGE, replicated=True)
STATE = MambaSpec(block_size=16, shapes=((192,),), dtypes=("float32",), page_size_padded=1024)
"""768 bytes and as many as make 1,024."""


def plan_of(case: Case, groups: Sequence[Sequence[str]], *pools: Placement) -> Plan:
    """A plan in which every layer keeps its own spec."""
    at = {layer.name: layer.spec for layer in case.layers}
    return Plan(
        specs=case.specs,
        groups=tuple(
            Group(layers=tuple(names), block_size=16, page_bytes=1024, span_tokens=16, kind="full", spec=at[names[0]])
            for names in groups
        ),
        placement=pools,
    )


def pool(*records: Record, blocks: int = 4) -> Placement:
    return Placement(num_blocks=blocks, records=records, group_layers=())


def only_pool(case: Case, plan: Plan) -> Pool:
    drawing = draw(case, plan)
    assert drawing is not None
    (one,) = drawing.pools
    return one


def mixed(first: Spec = PAGE, second: Spec = DRAFT, layout: str = "BLNHC") -> Case:
    return build_case(layers("t", first, 2) + layers("d", second, 1), Settings(layout=layout))  # type: ignore[arg-type]


def packed(*, stride: int = 2048) -> Plan:
    """Two groups over one pool of four blocks, block-outermost: two target layers, one draft layer."""
    case = mixed()
    return plan_of(
        case, [("t.0", "t.1"), ("d.0",)],
        pool(
            Record(size=8192, layers=("t.0", "t.1"), block_stride=stride, layer_stride=1024),
            Record(size=8192, layers=("d.0",), block_stride=stride),
        ),
    )  # fmt: skip


def test_layers_are_stacked_by_group_with_what_is_unused() -> None:
    drawn = only_pool(mixed(), packed())
    assert (drawn.num_blocks, drawn.size, drawn.blocks) == (4, 8192, (0, 1, 2, 3))
    target, draft = drawn.stacks
    assert [[row.layer for row in run] for run in target.runs] == [["t.0", "t.1"]]
    assert [(row.start, row.stride, row.mode) for run in target.runs for row in run] == [
        (0, 2048, "sharded"), (1024, 2048, "sharded"),
    ]  # fmt: skip
    assert (target.unused, draft.unused) == (0, 1024)
    assert draft.runs[0][0].mode == "replicated"
    assert drawn.overlaps == ()


def test_pages_of_one_block_in_two_groups_are_no_overlap_and_those_of_two_blocks_are() -> None:
    # Blocks 1,024 bytes apart: t.1 of block b lies where t.0 and d.0 of block b + 1 do.
    drawn = only_pool(mixed(), packed(stride=1024))
    target, draft = drawn.stacks
    first, second = target.runs[0]
    assert set(first.meets) == {1, 2, 3}
    assert set(second.meets) == {0, 1, 2}
    assert set(draft.runs[0][0].meets) == {1, 2, 3}
    assert drawn.overlaps == (("d.0", "t.1"), ("t.0", "t.1"))


def test_two_layers_of_a_group_on_the_same_bytes_overlap_in_every_block() -> None:
    case = mixed()
    plan = plan_of(
        case, [("t.0", "t.1"), ("d.0",)],
        pool(Record(size=4096, layers=("t.0", "t.1"), block_stride=1024, layer_stride=0)),
    )  # fmt: skip
    drawn = only_pool(case, plan)
    assert [set(row.meets) for row in drawn.stacks[0].runs[0]] == [{0, 1, 2, 3}, {0, 1, 2, 3}]


def test_a_page_that_ends_past_the_pool_is_marked() -> None:
    case = mixed()
    plan = plan_of(
        case, [("t.0", "t.1"), ("d.0",)], pool(Record(size=4096, layers=("d.0",), offset=512, block_stride=1024))
    )
    assert only_pool(case, plan).stacks[0].runs[0][0].outside == frozenset({3})


def test_padding_is_what_the_page_has_beyond_its_content() -> None:
    case = mixed(second=STATE)
    plan = plan_of(case, [("t.0", "t.1"), ("d.0",)], pool(Record(size=4096, layers=("d.0",), block_stride=1024)))
    row = only_pool(case, plan).stacks[0].runs[0][0]
    assert (row.page, row.content, row.mode) == (1024, 768, "recurrent")


def test_heads_apart_are_looked_at_one_by_one() -> None:
    # LHBNC: of each layer first the strips of head 0 for all blocks, then those of head 1.
    wide = structs.replace(PAGE, num_kv_heads=2)
    case = build_case(layers("t", wide, 2), Settings(layout="LHBNC"))
    record = Record(size=16384, layers=("t.0", "t.1"), block_stride=1024, layer_stride=8192)
    assert only_pool(case, plan_of(case, [("t.0", "t.1")], pool(record))).overlaps == ()
    close = structs.replace(record, layer_stride=4096)  # t.1's head 0 lies where t.0's head 1 does
    assert only_pool(case, plan_of(case, [("t.0", "t.1")], pool(close))).overlaps == (("t.0", "t.1"),)


def test_workers_with_the_same_pool_are_drawn_once_and_foreign_layers_told() -> None:
    settings = Settings(workers=(Worker(memory=1), Worker(memory=1), Worker(memory=1, stage=1)))
    case = build_case(layers("a", PAGE, 1) + layers("b", PAGE, 1, stage=1), settings)
    same = pool(Record(size=4096, layers=("a.0",), block_stride=1024))
    drawing = draw(case, plan_of(case, [("a.0", "b.0")], same, same, same))
    assert drawing is not None
    assert [(one.workers, one.foreign) for one in drawing.pools] == [((0, 1), ()), ((2,), ("a.0",))]


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, ()), (3, (0, 1, 2)), (12, tuple(range(12))), (13, (*range(9), 11, 12)), (1000, (*range(9), 998, 999))],
)
def test_many_blocks_are_cut_to_the_first_and_the_last(count: int, shown: tuple[int, ...]) -> None:
    assert shown_blocks(count) == shown


def many(count: int) -> tuple[Case, Plan]:
    case = build_case(layers("t", PAGE, count), Settings(layout="BLNHC"))
    names = tuple(layer.name for layer in case.layers)
    size = 1024 * count * 1000
    record = Record(size=size, layers=names, block_stride=1024 * count, layer_stride=1024)
    return case, plan_of(case, [names], pool(record, blocks=1000))


def test_a_large_plan_is_cut_and_says_so() -> None:
    drawn = only_pool(*many(1000))
    (stack,) = drawn.stacks
    assert (stack.layers, stack.left_out) == (1000, 1000 - MAX_LAYERS)
    assert [len(run) for run in stack.runs] == [39, 1]
    assert stack.runs[-1][0].layer == "t.999"
    text = pool_svg(drawn)
    assert "⋯ 960 layers not drawn" in text
    assert len(text) < 40_000


def test_ten_thousand_layers_are_drawn_in_a_blink() -> None:
    case, plan = many(10_000)
    begun = time.perf_counter()
    pool_svg(only_pool(case, plan))
    assert time.perf_counter() - begun < 2.0, "a tenth of that on an idle core"


def test_a_plan_without_a_placement_has_no_drawing() -> None:
    assert draw(mixed(), structs.replace(packed(), placement=None)) is None
    assert draw(mixed(), Plan()) is None


def test_colours_are_classes_and_what_is_wrong_comes_last() -> None:
    root = ElementTree.fromstring(pool_svg(only_pool(mixed(), packed(stride=1024))))
    rows = [[path.get("class") for path in group.iter("path")] for group in root.iter("g")]
    assert rows == [["sharded", "overlap"], ["sharded", "overlap"], ["replicated", "overlap"]]
    assert root.get("role") == "img"
    assert "overlapping: d.0 and t.1, t.0 and t.1" in root.get("aria-label", "")


def test_shapes_and_labels_stay_inside_the_picture() -> None:
    for drawn in (only_pool(mixed(), packed()), only_pool(*many(1000))):
        root = ElementTree.fromstring(pool_svg(drawn))
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for text in root.iter("text"):
            assert 0 <= float(text.get("x", "-1")) <= width
            assert 0 < float(text.get("y", "-1")) <= height


def test_long_names_keep_their_ends() -> None:
    assert names_of(["model.layers.0.self_attn.rotary.attn"]) == "…self_attn.rotary.attn"
    assert names_of(["t.0", "t.1", "t.9"]) == "t.0 … t.9"
    assert len(names_of(["x" * 40 + "0", "x" * 40 + "7"])) == 21
