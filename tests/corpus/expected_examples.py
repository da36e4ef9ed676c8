"""What vLLM 0.32.0 answers to the cases of ``corpus/examples``, written out.

A case has one expectation for each contract: ``native`` (vLLM as it is) and ``isolate``. Where a geometry was
recorded on a fork of the 0.29 era, the values below are 0.32.0's own; they agree with the record under the
layout named in the file name, unless the case's note says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

from oracles.plan import Stage
from tests.corpus.asking import Shape


class Pool(NamedTuple):
    """Blocks, bytes per block, (scheduler, hash) block in tokens, table columns, blocks per request, concurrency."""

    blocks: int
    block_bytes: int
    sizes: tuple[int, int]
    widths: tuple[int, ...]
    request: tuple[int, ...]
    concurrency: float


class Refusal(NamedTuple):
    """Stage, exception type, and what the message must say."""

    stage: Stage
    type: str
    says: str


class Expected(NamedTuple):
    """Groups (None: refused before there were any), and the pool or why there is none."""

    groups: tuple[Shape, ...] | None
    end: Pool | Refusal


NOT_DIVISIBLE = Refusal("group", "NotImplementedError", "page size is not divisible by the maximum page size")


def mixed_pages(*pages: int) -> Refusal:
    """Placement's refusal of groups with different pages under a layer-outer layout."""
    return Refusal("place", "ValueError", f"cannot express this model's mixed page sizes ({list(pages)})")


DRAFT_16 = ("sliding_window", 2, 16, 16, 65_536)
WIDE_TARGET = (("mla", 4, 64, 256, 73_728), *3 * (("mamba", 4, 64, 64, 73_728),))
PACKED_TARGET = (("mla", 2, 64, 256, 41_984), *3 * (("mamba", 2, 64, 64, 41_984),))
LARGE_TARGET = (
    ("mla", 11, 2304, 9216, 1_511_424),
    *2 * (("mamba", 9, 2304, 2304, 1_511_424),),
    *2 * (("mamba", 8, 2304, 2304, 1_511_424),),
)
LARGE_TARGET_PACKED = (
    ("mla", 11, 2304, 9216, 16_625_664),
    *2 * (("mamba", 9, 2304, 2304, 13_602_816),),
    *2 * (("mamba", 8, 2304, 2304, 12_091_392),),
)
LARGE_TARGET_SPLIT = (
    *2 * (("mla", 4, 2304, 9216, 1_511_424),),
    ("mla", 3, 2304, 9216, 1_511_424),
    *6 * (("mamba", 5, 2304, 2304, 1_511_424),),
    ("mamba", 4, 2304, 2304, 1_511_424),
)
EQUAL_TARGET_SPLIT = (
    *6 * (("mamba", 5, 32, 32, 36_864),),
    ("mamba", 4, 32, 32, 36_864),
)
BESIDE_DRAFT = (9, 9, 9, 9)  # blocks of recurrent state: two, and seven speculative ones

NATIVE: dict[str, Expected] = {
    "mla-and-window-draft.layer-outer": Expected(
        (*2 * (("mla", 2, 64, 256, 73_728),), ("sliding_window", 2, 16, 16, 73_728)),
        Pool(14_563, 147_456, (256, 16), (32, 32, 512), (32, 32, 257), 14_563 / 321),
    ),
    "mla-and-window-draft.block-outer": Expected(
        (("mla", 4, 64, 256, 294_912), ("sliding_window", 2, 16, 16, 131_072)),
        Pool(7_281, 294_912, (256, 16), (32, 512), (32, 257), 7_281 / 289),
    ),
    "mla-mamba-and-wide-block-draft.layer-outer": Expected(None, NOT_DIVISIBLE),
    "mla-mamba-and-wide-block-draft.block-outer": Expected(
        (
            ("mla", 4, 64, 256, 294_912),
            *3 * (("mamba", 4, 64, 64, 294_912),),
            *5 * (("sliding_window", 1, 256, 256, 262_144),),
        ),
        Pool(7_281, 294_912, (256, 64), (32, *3 * (128,), *5 * (32,)), (32, *3 * (2,), *5 * (17,)), 7_281 / 123),
    ),
    "mla-and-replicated-full.layer-outer": Expected(
        (("mla", 1, 256, 1024, 65_536), ("full", 1, 64, 64, 65_536)),
        Pool(16_384, 65_536, (1024, 64), (4, 64), (4, 64), 16_384 / 68),
    ),
    "mla-and-replicated-full.block-outer": Expected(
        (("mla", 1, 64, 256, 16_384), ("full", 1, 64, 64, 65_536)),
        Pool(16_384, 65_536, (256, 64), (16, 64), (16, 64), 16_384 / 80),
    ),
    "replicated-window-alone": Expected(
        (("sliding_window", 1, 16, 16, 16_384),),
        Pool(65_536, 16_384, (16, 16), (256,), (257,), 65_536 / 257),
    ),
    "full-and-equal-replicated-full": Expected(
        (("full", 2, 16, 64, 8_192), ("full", 2, 16, 16, 8_192)),
        Pool(65_536, 16_384, (64, 16), (128, 512), (128, 512), 65_536 / 640),
    ),
    "mla-and-fp8-window-draft.layer-outer": Expected(
        (("mla", 4, 128, 512, 32_768), ("sliding_window", 5, 64, 64, 32_768)),
        Pool(6_553, 163_840, (512, 64), (16, 128), (16, 65), 6_553 / 81),
    ),
    "mla-and-fp8-window-draft.block-outer": Expected(
        (
            ("mla", 4, 64, 256, 65_536),
            *2 * (("sliding_window", 2, 64, 64, 65_536),),
            ("sliding_window", 1, 64, 64, 32_768),
        ),
        Pool(16_384, 65_536, (256, 64), (32, 128, 128, 128), (32, 65, 65, 65), 16_384 / 227),
    ),
    "packed-mla-mamba-and-window-draft.layer-outer": Expected(None, NOT_DIVISIBLE),
    "packed-mla-mamba-and-window-draft.block-outer": Expected(
        (
            ("mla", 2, 64, 256, 83_968),
            *3 * (("mamba", 2, 64, 64, 83_968),),
            *5 * (("sliding_window", 1, 64, 64, 65_536),),
        ),
        Pool(12_787, 83_968, (256, 64), (32, *8 * (128,)), (32, *3 * (2,), *5 * (65,)), 12_787 / 363),
    ),
    "fp32-mla-and-fp16-window-draft.layer-outer": Expected(
        (("mla", 1, 16, 64, 36_864), ("sliding_window", 1, 144, 144, 36_864)),
        Pool(29_127, 36_864, (576, 16), (128, 57), (128, 30), 29_127 / 158),
    ),
    "fp32-mla-and-fp16-window-draft.block-outer": Expected(
        (("mla", 1, 16, 64, 36_864), ("sliding_window", 1, 16, 16, 4_096)),
        Pool(29_127, 36_864, (64, 16), (128, 512), (128, 257), 29_127 / 385),
    ),
    "mamba-mla-and-sharded-draft": Expected(
        (
            *EQUAL_TARGET_SPLIT,
            *2 * (("mla", 4, 32, 32, 36_864),),
            ("mla", 3, 32, 32, 36_864),
            ("sliding_window", 5, 16, 16, 36_864),
        ),
        Pool(23_301, 184_320, (32, 16), (*10 * (256,), 512), (*7 * (2,), *3 * (256,), 257), 23_301 / 1_039),
    ),
    "mamba-mla-and-replicated-draft": Expected(
        (
            *EQUAL_TARGET_SPLIT,
            *2 * (("mla", 4, 32, 128, 36_864),),
            ("mla", 3, 32, 128, 36_864),
            ("sliding_window", 5, 16, 16, 36_864),
        ),
        Pool(
            23_301,
            184_320,
            (128, 16),
            (*7 * (256,), *3 * (64,), 512),
            (*7 * (2,), *3 * (64,), 257),
            23_301 / 463,
        ),
    ),
    "mamba-mla-without-draft": Expected(
        (
            *2 * (("mamba", 9, 32, 32, 36_864),),
            *2 * (("mamba", 8, 32, 32, 36_864),),
            ("mla", 11, 32, 128, 36_864),
        ),
        Pool(10_591, 405_504, (128, 32), (*4 * (256,), 64), (*4 * (2,), 64), 10_591 / 72),
    ),
    "mla-and-mamba-at-2304-draft-block-64.layer-outer": Expected(
        (*LARGE_TARGET_SPLIT, ("sliding_window", 5, 64, 64, 1_511_424)),
        Pool(
            2_273,
            7_557_120,
            (9216, 64),
            (*3 * (15,), *7 * (64,), 2048),
            (*3 * (15,), *7 * (9,), 161),
            2_273 / 269,
        ),
    ),
    "mla-and-mamba-at-2304-draft-block-64.block-outer": Expected(
        (*LARGE_TARGET_PACKED, ("sliding_window", 5, 64, 64, 327_680)),
        Pool(1_033, 16_625_664, (9216, 64), (15, *4 * (64,), 2048), (15, *BESIDE_DRAFT, 161), 1_033 / 212),
    ),
    "mla-and-mamba-at-2304-draft-block-256.layer-outer": Expected(
        (*LARGE_TARGET_SPLIT, ("sliding_window", 5, 256, 256, 1_511_424)),
        Pool(
            2_273,
            7_557_120,
            (9216, 256),
            (*3 * (15,), *7 * (64,), 512),
            (*3 * (15,), *7 * (9,), 41),
            2_273 / 149,
        ),
    ),
    "mla-and-mamba-at-2304-draft-block-256.block-outer": Expected(
        (*LARGE_TARGET_PACKED, ("sliding_window", 5, 256, 256, 1_310_720)),
        Pool(1_033, 16_625_664, (9216, 256), (15, *4 * (64,), 512), (15, *BESIDE_DRAFT, 41), 1_033 / 92),
    ),
    "mla-and-mamba-at-2304-draft-block-2304.layer-outer": Expected(None, NOT_DIVISIBLE),
    "mla-and-mamba-at-2304-draft-block-2304.block-outer": Expected(
        (*LARGE_TARGET_PACKED, ("sliding_window", 5, 2304, 2304, 11_796_480)),
        Pool(1_033, 16_625_664, (9216, 2304), (15, *4 * (64,), 57), (15, *BESIDE_DRAFT, 6), 1_033 / 57),
    ),
}

ISOLATE: dict[str, Expected] = {
    "mla-and-window-draft.layer-outer": Expected((("mla", 4, 64, 256, 73_728), DRAFT_16), mixed_pages(65_536, 73_728)),
    "mla-and-window-draft.block-outer": Expected(
        (("mla", 4, 64, 256, 73_728), DRAFT_16),
        Pool(7_281, 294_912, (256, 16), (32, 512), (32, 257), 7_281 / 289),
    ),
    "mla-mamba-and-wide-block-draft.layer-outer": Expected(
        (*WIDE_TARGET, ("sliding_window", 5, 256, 256, 262_144)), mixed_pages(73_728, 262_144)
    ),
    "mla-mamba-and-wide-block-draft.block-outer": Expected(
        (*WIDE_TARGET, ("sliding_window", 5, 256, 256, 262_144)),
        Pool(1_638, 1_310_720, (256, 64), (32, *3 * (128,), 32), (32, *3 * (2,), 17), 1_638 / 55),
    ),
    "mla-and-replicated-full.layer-outer": Expected(
        (("mla", 1, 64, 256, 16_384), ("full", 1, 64, 64, 65_536)), mixed_pages(16_384, 65_536)
    ),
    "mla-and-replicated-full.block-outer": Expected(
        (("mla", 1, 64, 256, 16_384), ("full", 1, 64, 64, 65_536)),
        Pool(16_384, 65_536, (256, 64), (16, 64), (16, 64), 16_384 / 80),
    ),
    "replicated-window-alone": NATIVE["replicated-window-alone"],
    "full-and-equal-replicated-full": NATIVE["full-and-equal-replicated-full"],
    "mla-and-fp8-window-draft.layer-outer": Expected(
        (("mla", 4, 64, 256, 16_384), ("sliding_window", 5, 64, 64, 32_768)), mixed_pages(16_384, 32_768)
    ),
    "mla-and-fp8-window-draft.block-outer": Expected(
        (("mla", 4, 64, 256, 16_384), ("sliding_window", 5, 64, 64, 32_768)),
        Pool(6_553, 163_840, (256, 64), (32, 128), (32, 65), 6_553 / 97),
    ),
    "packed-mla-mamba-and-window-draft.layer-outer": Expected(
        (*PACKED_TARGET, ("sliding_window", 5, 64, 64, 65_536)), mixed_pages(41_984, 65_536)
    ),
    "packed-mla-mamba-and-window-draft.block-outer": Expected(
        (*PACKED_TARGET, ("sliding_window", 5, 64, 64, 65_536)),
        Pool(3_276, 327_680, (256, 64), (32, *4 * (128,)), (32, *3 * (2,), 65), 3_276 / 103),
    ),
    "fp32-mla-and-fp16-window-draft.layer-outer": Expected(
        (("mla", 1, 16, 64, 36_864), ("sliding_window", 1, 16, 16, 4_096)), mixed_pages(4_096, 36_864)
    ),
    "fp32-mla-and-fp16-window-draft.block-outer": Expected(
        (("mla", 1, 16, 64, 36_864), ("sliding_window", 1, 16, 16, 4_096)),
        Pool(29_127, 36_864, (64, 16), (128, 512), (128, 257), 29_127 / 385),
    ),
    "mamba-mla-and-sharded-draft": NATIVE["mamba-mla-and-sharded-draft"],
    "mamba-mla-and-replicated-draft": Expected(
        (
            *2 * (("mamba", 9, 32, 32, 36_864),),
            *2 * (("mamba", 8, 32, 32, 36_864),),
            ("mla", 11, 32, 128, 36_864),
            ("sliding_window", 5, 16, 16, 36_864),
        ),
        Pool(10_591, 405_504, (128, 16), (*4 * (256,), 64, 512), (*4 * (2,), 64, 257), 10_591 / 329),
    ),
    "mamba-mla-without-draft": NATIVE["mamba-mla-without-draft"],
    "mla-and-mamba-at-2304-draft-block-64.layer-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 64, 64, 65_536)), mixed_pages(65_536, 1_511_424)
    ),
    "mla-and-mamba-at-2304-draft-block-64.block-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 64, 64, 65_536)),
        Pool(1_033, 16_625_664, (9216, 64), (15, *4 * (64,), 2048), (15, *BESIDE_DRAFT, 161), 1_033 / 212),
    ),
    "mla-and-mamba-at-2304-draft-block-256.layer-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 256, 256, 262_144)), mixed_pages(262_144, 1_511_424)
    ),
    "mla-and-mamba-at-2304-draft-block-256.block-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 256, 256, 262_144)),
        Pool(1_033, 16_625_664, (9216, 256), (15, *4 * (64,), 512), (15, *BESIDE_DRAFT, 41), 1_033 / 92),
    ),
    "mla-and-mamba-at-2304-draft-block-2304.layer-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 2304, 2304, 2_359_296)), mixed_pages(1_511_424, 2_359_296)
    ),
    "mla-and-mamba-at-2304-draft-block-2304.block-outer": Expected(
        (*LARGE_TARGET, ("sliding_window", 5, 2304, 2304, 2_359_296)),
        Pool(1_033, 16_625_664, (9216, 2304), (15, *4 * (64,), 57), (15, *BESIDE_DRAFT, 6), 1_033 / 57),
    ),
}
