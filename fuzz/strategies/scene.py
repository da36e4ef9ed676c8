"""A *scene* is what all layers of a case share and must agree on; it is drawn before any layer.

A window is kept whole under DCP, a Mamba state's block depends on the cache mode and the model length, a draft
decides the speculative blocks: drawing these first makes every layer valid the first time.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from fuzz.strategies.pages import RELATIONS, Relation
from fuzz.strategies.source import Source, pick
from fuzz.strategies.vocabulary import Shape
from oracles.case import SPEC_CLASSES

Policy = Literal["none", "draft", "some", "all"]
"""Which attention layers are replicated: none, the draft's, any of them by chance, or all."""

MIXED_POLICIES: tuple[Policy, ...] = ("draft", "draft", "some", "some")

BLOCK_SIZES = (16, 32, 64, 128, 256, 8, 48, 4, 1, 544, 1040, 2304, 17)
"""Tokens. Kernel sizes, those that hybrid models are given (544, 1040, 2304), and the odd ones."""

DCP_SIZES = (2, 4, 8, 16, 3, 5)
"""Ranks. 3 and 5 are coprime with every kernel block size."""

MODEL_LENGTHS = (8192, 4096, 1024, 131_072, 100, 1, 1_000_000, 2_000)
"""Tokens."""

WINDOWED = ("sliding_window", "sliding_window_mla")
QUIRKS = (
    "odd_heads", "value_size", "padded", "stride", "stride_blocks", "compressed", "fraction", "packed_state",
    "quantised", "tp_shards", "recorded_window", "non_causal", "role", "version", "alignment", "replay",
    "checkpoint", "tp_replicated", "free_dtype",
)  # fmt: skip
"""What a spec may have beyond its kind, block and heads. Each case has a subset of them in play."""

WEIGHTS = {"full": 5, "mla": 4, "sliding_window": 4, "mamba": 4, "chunked_local": 2, "sliding_window_mla": 2}
"""How often a kind is drawn; 1 for the others."""

CONVERTIBLE = ("full", "mla", "sliding_window", "chunked_local", "sink")
"""Kinds that become one type where the hybrid manager is off: any other beside them is a refusal. A latent window
should be, but 0.32 passes its replay on to a kind that knows none, and refuses all of them.
"""

CONVERTED: tuple[Relation, ...] = ("free", "free", "free", "equal", "just_fits", "byte_more", "divides")
"""How pages stand there. What is converted takes the block of full attention, if all of that has one: mostly alike."""

SPARSE: tuple[int, ...] = (0, 0, 0, 1, 1, 2)
DENSE: tuple[int, ...] = (1, 1, 2, 2, 3)
"""Quirks per spec. Dense ones make specs meet that differ in one quirk, or share it at two values."""

THEMES: tuple[tuple[Relation, ...], ...] = (
    RELATIONS, RELATIONS, RELATIONS, ("equal",), ("equal",), ("free",), ("free",), ("divides", "multiple", "equal"),
)  # fmt: skip
"""The relations in which the pages of one case stand. All in play, several pages are almost never one size: the
rules for equal pages, for pages that divide and for one block size would meet two specs at most.
"""

WEIGHTED_KINDS = tuple(kind for kind in SPEC_CLASSES for _ in range(WEIGHTS.get(kind, 1)))


class Scene(Struct, frozen=True, kw_only=True):
    """The common ground of one case. ``block_size``, ``model_len`` and ``lookahead`` (tokens that a draft
    proposes; 0: no draft) are in tokens. ``density`` holds how many quirks a spec may have, ``relations`` how
    its page may stand to another's.
    """

    shape: Shape
    policy: Policy
    dcp: int
    block_size: int
    model_len: int
    mamba_mode: Literal["none", "align", "all"]
    lookahead: int
    hybrid_manager: bool
    kinds: tuple[str, ...]
    quirks: tuple[str, ...]
    density: tuple[int, ...] = SPARSE
    relations: tuple[Relation, ...] = RELATIONS

    @property
    def mixed(self) -> bool:
        """Whether the case must hold replicated attention beside other layers."""
        return self.policy in ("draft", "some")

    def may_shard(self, kind: str) -> bool:
        """Whether vLLM allows ``kind`` to be split over the ranks of this case."""
        return self.dcp == 1 or kind not in WINDOWED or self.shape.sharded_windows

    def replicates(self, source: Source, kind: str, *, draft: bool = False) -> bool:
        """Whether the next layer of ``kind`` is replicated."""
        if not self.shape.vocabulary.replicable(kind):
            return False
        if self.policy == "all" or not self.may_shard(kind):
            return True
        if self.policy == "none":
            return False
        if self.policy == "draft":
            return draft and not source.chance(15)
        return source.chance(40)


def draw_scene(source: Source, shape: Shape) -> Scene:
    """Draws the common ground of one case.

    Every draw is made whatever the others gave, so that no answer is simpler than another for saving one.
    """
    vocabulary = shape.vocabulary
    mixed_by_chance, speculates = source.chance(58), source.chance(40)
    lookahead, mixed_policy = source.choice((1, 2, 3, 5, 7, 15)), source.choice(MIXED_POLICIES)
    all_replicated, splits, dcp = source.chance(20), source.integer(0, 99), source.choice(DCP_SIZES)
    block_size, other_block, odd_length = source.choice(BLOCK_SIZES), source.chance(60), source.chance(30)

    can_replicate = any(vocabulary.replicable(kind) for kind in vocabulary.fields)
    mixed = can_replicate and (shape.modes == "mixed" or (shape.modes == "any" and mixed_by_chance))
    policy: Policy = "all" if can_replicate and all_replicated else "none"
    if mixed:
        policy = mixed_policy
    # Replication shows under DCP alone; where nothing is replicated, windows can stand in the target without DCP alone.
    if splits < (20 if mixed else 35 if policy == "all" else 65):
        dcp = 1
    offered = [kind for kind in vocabulary.fields if shape.encoder_only or kind != "encoder_only"]
    if policy == "all":
        offered = [kind for kind in offered if vocabulary.replicable(kind)]
    elif dcp > 1 and not shape.sharded_windows and (policy == "none" or not vocabulary.replicable("sliding_window")):
        offered = [kind for kind in offered if kind not in WINDOWED]
    kinds, hybrid_manager = source.subset(tuple(offered), 40), not source.chance(20)
    dense, relations = source.chance(60), source.choice(THEMES)
    narrowed, bare = source.chance(30), source.chance(25)
    narrow, any_kind = source.subset(tuple(offered), 75), source.chance(33)
    # A mixed case has a draft that is replicated, or such layers in its target.
    drafted = mixed and not (bare and policy == "some" and shape.max_layers > 1)
    if narrowed:
        kinds = narrow  # many specs of two or three kinds: what merges, ties and twins
    quirks = source.subset(QUIRKS, 55)
    if not hybrid_manager and not any_kind:
        # What does not convert is refused before anything is planned.
        kinds = tuple(kind for kind in offered if kind in CONVERTIBLE) or kinds
        relations = CONVERTED
    return Scene(
        shape=shape,
        policy=policy,
        dcp=dcp,
        block_size=block_size if other_block else BLOCK_SIZES[0],
        model_len=source.choice(MODEL_LENGTHS) + (source.integer(0, 2) if odd_length else 0),
        mamba_mode=source.choice(("none", "align", "align", "all")),
        lookahead=lookahead if speculates or drafted else 0,
        hybrid_manager=hybrid_manager,
        kinds=kinds,
        quirks=quirks,
        density=DENSE if dense else SPARSE,
        relations=relations,
    )


def draw_kind(source: Source, kinds: tuple[str, ...]) -> str:
    """One of ``kinds``, by weight."""
    return pick(source, WEIGHTED_KINDS, kinds)
