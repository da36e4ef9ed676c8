"""Stacks shaped like published models: the layer patterns and geometries that the planner meets in service.

Each function draws one family. The numbers are those of public model configurations; a draw varies the repeats and
a few widths, so that a family is a neighbourhood and not a point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from fuzz.strategies.scene import Scene
from fuzz.strategies.source import Source
from fuzz.strategies.specs import mamba_block
from fuzz.strategies.target import Stack, draw_count
from oracles.case import (
    ChunkedLocalSpec,
    CircularBufferSpec,
    CrossSpec,
    DType,
    FullSpec,
    HiddenStateSpec,
    MambaSpec,
    MlaSpec,
    MultipleOf,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
    mode_of,
)
from oracles.geometry import ceil_div, content_bytes, page_bytes, round_up

STATES: tuple[tuple[tuple[tuple[int, ...], ...], str], ...] = (
    (((3, 8192), (32, 128, 128)), "GDN_ATTN"),
    (((3, 2560), (16, 128, 256)), "MAMBA2"),
    (((2, 2048),), "SHORT_CONV"),
)
"""Tensors of a state, and the backend that keeps it."""

BFLOATS: tuple[DType, ...] = ("bfloat16", "bfloat16")

Family = Callable[[Source, Scene], Stack]


def draw_model(source: Source, scene: Scene) -> Stack | None:
    """A stack of one family whose kinds this scene allows; None when it allows none."""
    known = scene.shape.vocabulary.fields
    # Without the hybrid manager only windows and chunks beside full attention can still be planned.
    families = FAMILIES if scene.hybrid_manager else {family: FAMILIES[family] for family in CONVERTIBLE}
    fit = [
        family
        for family, kinds in families.items()
        if all(kind in known and _allowed(scene, kind) for kind in kinds) and scene.shape.max_layers >= 8
    ]
    return source.choice(fit)(source, scene) if fit else None


def _allowed(scene: Scene, kind: str) -> bool:
    """Whether ``kind`` can stand in the target under the scene's replication policy."""
    replicable = scene.shape.vocabulary.replicable(kind)
    if scene.policy == "all":
        return replicable
    return scene.may_shard(kind) or (replicable and scene.policy != "none")


def _repeat(source: Source, scene: Scene, specs: tuple[Spec, ...], unit: tuple[int, ...]) -> Stack:
    """``unit`` over and over: whole repeats mostly, sometimes cut short at the end as real stacks are."""
    # A mixed case needs a layer that is not replicated, however short the stack.
    least = next((at + 1 for at, spec in enumerate(unit) if mode_of(specs[spec]) != "replicated"), 1)
    count = max(least, draw_count(source, scene.shape.max_layers))
    if source.chance(80):
        count = round_up(count, len(unit))
    return Stack(specs, (unit * ceil_div(count, len(unit)))[: min(count, scene.shape.max_layers)])


def _mode(scene: Scene, kind: str) -> dict[str, Any]:
    """The replication of one spec; families keep their target sharded wherever vLLM allows it."""
    replicated = scene.policy == "all" or not scene.may_shard(kind)
    return {"replicated": True} if replicated and scene.shape.vocabulary.replicable(kind) else {}


def _attention(source: Source, scene: Scene, kind: str = "full") -> dict[str, Any]:
    heads, head_size = source.choice(((1, 64), (8, 128), (4, 256), (2, 128), (16, 128), (20, 64)))
    return {
        "block_size": scene.block_size, "num_kv_heads": heads, "head_size": head_size,
        **_mode(scene, kind),
    }  # fmt: skip


def dense(source: Source, scene: Scene) -> Stack:
    """One kind of full attention throughout."""
    return _repeat(source, scene, (FullSpec(**_attention(source, scene)),), (0,))


def windowed(source: Source, scene: Scene) -> Stack:
    """Windows and full attention, 5:1, 3:1 or 1:1, sometimes with wider heads in the full layers."""
    shared = _attention(source, scene)
    window = SlidingWindowSpec(
        **{**shared, **_mode(scene, "sliding_window")}, sliding_window=source.choice((1024, 128, 512, 4097))
    )
    wide = source.choice((1, 1, 2))
    full = FullSpec(**{**shared, "head_size": shared["head_size"] * wide})
    return _repeat(source, scene, (window, full), (0,) * source.choice((5, 3, 1)) + (1,))


def chunked(source: Source, scene: Scene) -> Stack:
    """Chunked attention and full attention, 3:1."""
    shared = _attention(source, scene)
    local = ChunkedLocalSpec(**shared, attention_chunk_size=source.choice((8192, 1024)))
    return _repeat(source, scene, (local, FullSpec(**shared)), (0, 0, 0, 1))


def encoder_decoder(source: Source, scene: Scene) -> Stack:
    """Self-attention and cross-attention side by side in each decoder layer."""
    shared = _attention(source, scene)
    return _repeat(source, scene, (FullSpec(**shared), CrossSpec(**shared)), (0, 1))


def _latent(source: Source, scene: Scene, block: int) -> MlaSpec:
    fields: dict[str, Any] = {"block_size": block, "num_kv_heads": 1, "head_size": 576, **_mode(scene, "mla")}
    known = scene.shape.vocabulary.fields["mla"]
    packed = source.choice((False, False, True))
    if packed and "state_content_bytes" in known:
        fields.update(dtype="uint8", state_content_bytes=656, cache_dtype_str="fp8_ds_mla")
    return MlaSpec(**fields)


def latent(source: Source, scene: Scene) -> Stack:
    """Latent attention throughout."""
    return _repeat(source, scene, (_latent(source, scene, source.choice((64, 32, 16))),), (0,))


def indexed_latent(source: Source, scene: Scene) -> Stack:
    """Latent attention with an indexer cache in every layer, or in every fourth."""
    block = source.choice((64, 16))
    fields: dict[str, Any] = {"block_size": block, "num_kv_heads": 1, "head_size": 132, "dtype": "uint8"}
    vocabulary = scene.shape.vocabulary
    if vocabulary.knows("mla", "cache_role"):
        fields["cache_role"] = "indexer"
    if vocabulary.multiple_of and vocabulary.knows("mla", "block_stride_alignment"):
        fields["block_stride_alignment"] = MultipleOf(multiple_of=64)
    indexer = MlaSpec(**fields, **_mode(scene, "mla"))
    unit = source.choice(((0, 1), (0, 1, 1, 1, 1)))
    return _repeat(source, scene, (indexer, _latent(source, scene, block)), unit)


def _state(source: Source, scene: Scene, page: int) -> MambaSpec:
    """A state whose page is padded up to ``page`` bytes, as platforms do for hybrid models."""
    shapes, kind = source.choice(STATES)
    bare = MambaSpec(
        block_size=mamba_block(source, scene), shapes=shapes, dtypes=BFLOATS[: len(shapes)], mamba_type=kind,
        mamba_cache_mode=scene.mamba_mode, num_speculative_blocks=scene.lookahead,
    )  # fmt: skip
    if content_bytes(bare) >= page:
        return bare
    return structs.replace(bare, page_size_padded=page)


def state_hybrid(source: Source, scene: Scene) -> Stack:
    """Recurrent layers and full attention, 3:1 and sparser; the attention block is raised to the state's page."""
    attention = FullSpec(**_attention(source, scene))
    state = _state(source, scene, 0)
    per_token = page_bytes(attention) // attention.block_size
    block = round_up(-(-content_bytes(state) // per_token), 16)
    if source.chance(70) and per_token * block < 2**26:
        attention = structs.replace(attention, block_size=block)
        page = page_bytes(attention)
        if content_bytes(state) < page:
            state = structs.replace(state, page_size_padded=page)
        if scene.mamba_mode == "align":
            state = structs.replace(state, block_size=block)
    return _repeat(source, scene, (state, attention), (0,) * source.choice((3, 1, 7)) + (1,))


def state_latent(source: Source, scene: Scene) -> Stack:
    """Recurrent layers and latent attention, 3:1; the states are padded to the latent page."""
    attention = _latent(source, scene, source.choice((64, 576, 2304, 256)))
    state = _state(source, scene, page_bytes(attention))
    return _repeat(source, scene, (state, attention), (0, 0, 0, 1))


def compressed_latent(source: Source, scene: Scene) -> Stack:
    """Windowed latent layers beside compressed ones and their indexers, on unequal blocks (DeepSeek-V4)."""
    known = scene.shape.vocabulary
    version: dict[str, Any] = {"model_version": "deepseek_v4"} if known.knows("mla", "model_version") else {}
    ratio = source.choice((4, 128)) if known.knows("mla", "tokens_per_state") else 1
    aligned: dict[str, Any] = {"alignment": 576} if known.knows("mla", "alignment") else {}
    shared: dict[str, Any] = {"num_kv_heads": 1, "head_size": 512, "dtype": "bfloat16"}
    window = SlidingWindowMlaSpec(
        block_size=source.choice((64, 8)), sliding_window=128, **shared, **aligned, **version,
        **_mode(scene, "sliding_window_mla"),
    )  # fmt: skip
    sparse = MlaSpec(block_size=256, tokens_per_state=ratio, **shared, **aligned, **version,
                     **_mode(scene, "mla"))  # fmt: skip
    indexer = MlaSpec(
        **{**shared, "head_size": 132, "dtype": "uint8"}, block_size=256, tokens_per_state=ratio, **version,
        **_mode(scene, "mla"),
    )  # fmt: skip
    specs: tuple[Spec, ...] = (window, sparse, indexer)
    unit: tuple[int, ...] = (0, 1, 2)
    if known.knows("circular_buffer", "block_size") and _allowed(scene, "circular_buffer") and source.chance(30):
        specs = (*specs, CircularBufferSpec(block_size=8, num_kv_heads=1, head_size=512,
                                            **_mode(scene, "circular_buffer")))  # fmt: skip
        unit = (0, 1, 2, 3)
    return _repeat(source, scene, specs, unit)


def latent_windows(source: Source, scene: Scene) -> Stack:
    """Latent layers and plain windows whose pages have no common measure: an MLA target with a windowed draft."""
    block = source.choice((64, 16, 32))
    heads, head_size = source.choice(((8, 128), (3, 128), (16, 64)))
    window = SlidingWindowSpec(
        block_size=block, num_kv_heads=heads, head_size=head_size, sliding_window=source.choice((1024, 2048, 128)),
        **_mode(scene, "sliding_window"),
    )  # fmt: skip
    return _repeat(source, scene, (_latent(source, scene, block), window), source.choice(((0, 1), (0, 0, 0, 1))))


def extraction(source: Source, scene: Scene) -> Stack:
    """A dense model whose hidden states are kept for another process."""
    hidden = HiddenStateSpec(
        block_size=scene.block_size, num_kv_heads=source.choice((4, 1, 3)), head_size=source.choice((1024, 4096, 64)),
        **_mode(scene, "hidden_state"),
    )  # fmt: skip
    base = source.choice((dense, windowed if _allowed(scene, "sliding_window") else dense, latent))(source, scene)
    taps = (len(base.specs),) * source.choice((1, 2))
    return Stack((*base.specs, hidden), base.order[: scene.shape.max_layers - 2] + taps)


FAMILIES: dict[Family, tuple[str, ...]] = {
    dense: ("full",),
    windowed: ("sliding_window", "full"),
    latent: ("mla",),
    indexed_latent: ("mla",),
    state_latent: ("mamba", "mla"),
    state_hybrid: ("mamba", "full"),
    chunked: ("chunked_local", "full"),
    encoder_decoder: ("full", "cross"),
    latent_windows: ("mla", "sliding_window"),
    compressed_latent: ("sliding_window_mla", "mla"),
    extraction: ("hidden_state", "full", "mla"),
}
"""Each family with the kinds it needs."""

CONVERTIBLE = (windowed, chunked, latent_windows)
"""Families whose local layers can be allocated like full attention."""
