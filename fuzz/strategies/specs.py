"""Draws one layer spec of a kind: geometry first, then at most a few quirks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from fuzz.strategies.scene import QUIRKS, Scene
from fuzz.strategies.source import Source, pick
from oracles.case import SPEC_CLASSES, DType, MambaSpec, MultipleOf, Spec
from oracles.geometry import DTYPE_BYTES, content_bytes, stride_alignment

HEADS = (1, 2, 4, 8, 16, 32)
ODD_HEADS = (3, 5, 7, 11, 20)
HEAD_SIZES = (64, 128, 256, 96, 80, 192, 512)
DTYPES: tuple[DType, ...] = ("bfloat16", "bfloat16", "float16", "uint8", "float8_e4m3fn", "float32")
RARE_DTYPES: tuple[DType, ...] = ("int8", "float8_e5m2", "float64", "int16", "int32")

LATENTS: tuple[dict[str, Any], ...] = (
    {"head_size": 576},
    {"head_size": 128},
    {"head_size": 576, "dtype": "uint8", "state_content_bytes": 656, "cache_dtype_str": "fp8_ds_mla"},
    {"head_size": 576, "dtype": "uint8", "cache_dtype_str": "fp8"},
    {"head_size": 132, "dtype": "uint8", "cache_role": "indexer"},
    {"head_size": 576, "dtype": "float32"},
    {"head_size": 512},
    {"head_size": 320},
)
"""Latent geometries of published models and of the backends that pack them."""

WINDOWS = (1024, 128, 2048, 512, 4, 4097, 1, 16, 100_000)
CHUNKS = (8192, 1024, 64, 16, 3)
RINGS = (8, 16, 4, 12)
MAMBA_TYPES = ("MAMBA2", "GDN_ATTN", "MAMBA1", "SHORT_CONV", "LINEAR")
MAMBA_SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((3, 64), (8, 16, 32)),
    ((3, 8192), (32, 128, 128)),
    ((3, 2560), (16, 128, 256)),
    ((5, 2048), (8, 128, 128)),
    ((3, 5376), (80, 64, 128)),
    ((4096, 16),),
    ((2, 1536),),
    ((17, 1055),),
)
"""Convolution and state tensors of published models; the last two are small and odd."""

LATENT_KINDS = ("mla", "hidden_state", "sliding_window_mla")
FULL_KINDS = ("full", "mla", "rswa", "sink")
"""Kinds that may record a window and attend non-causally. Not ``hidden_state``: nothing attends to it."""

LAST = ("padded",)
"""A padding is measured from the finished content."""

Fields = dict[str, Any]


def draw_spec(source: Source, scene: Scene, kind: str, *, replicated: bool, block_size: int | None = None) -> Spec:
    """A spec of ``kind``; ``block_size`` in tokens defaults to the scene's."""
    if kind == "mamba":
        return draw_mamba(source, scene)
    fields: Fields = {"block_size": block_size or scene.block_size, "replicated": replicated}
    if kind == "hidden_state":
        fields["num_kv_heads"] = source.choice((1, 3, 4))
        fields["head_size"] = source.choice((64, 512, 4096))
    elif kind in LATENT_KINDS:
        fields["num_kv_heads"] = 1
        known = scene.shape.vocabulary.fields[kind]
        fields.update({k: v for k, v in source.choice(LATENTS).items() if k in known})
    else:
        fields["num_kv_heads"] = source.choice(HEADS)
        fields["head_size"] = source.choice(HEAD_SIZES)
        fields["dtype"] = source.choice(DTYPES)
    if kind in ("sliding_window", "sliding_window_mla"):
        # extra_retained_tokens stays 0: it is the planner that sets it, from the speculative settings.
        fields["sliding_window"] = source.choice(WINDOWS)
    elif kind == "chunked_local":
        fields["attention_chunk_size"] = source.choice(CHUNKS)
    elif kind == "rswa":
        fields["rswa_window"] = source.choice(WINDOWS)
    elif kind == "sink":
        fields["sink_len"] = source.choice((None, 4, 128))
    elif kind == "circular_buffer":
        fields["block_size"] = source.choice(RINGS)
    drawn = [pick(source, QUIRKS, scene.quirks) for _ in range(source.choice(scene.density))]
    for quirk in sorted(drawn, key=LAST.__contains__):
        if quirk in ATTENTION_QUIRKS:
            ATTENTION_QUIRKS[quirk](source, scene, kind, fields)
    return with_sound_stride(SPEC_CLASSES[kind](**fields))  # type: ignore[arg-type]


def with_sound_stride(spec: Spec) -> Spec:
    """``spec``, without a stride in kernel blocks too small for one compressed state: no backend asks for it."""
    return spec if stride_alignment(spec) else structs.replace(spec, block_stride_alignment=None)


def draw_mamba(source: Source, scene: Scene) -> MambaSpec:
    """A recurrent state in the scene's cache mode."""
    shapes = source.choice(MAMBA_SHAPES)
    fields: Fields = {
        "block_size": mamba_block(source, scene),
        "shapes": shapes,
        "dtypes": tuple(source.choice(("bfloat16", "float32")) for _ in shapes),
        "mamba_type": source.choice(MAMBA_TYPES),
        "mamba_cache_mode": scene.mamba_mode,
        "num_speculative_blocks": scene.lookahead,
    }
    known = scene.shape.vocabulary.fields["mamba"]
    if "checkpoint" in scene.quirks and "num_prefill_checkpoint_blocks" in known and source.chance(60):
        fields.update(num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=source.choice((1, 64)))
    if "tp_replicated" in scene.quirks and "tp_replicated" in known:
        fields["tp_replicated"] = source.chance(50)
    if "stride" in scene.quirks and "block_stride_alignment" in known and source.chance(40):
        fields["block_stride_alignment"] = source.choice((512, 4096))
    spec = MambaSpec(**fields)
    if "padded" in scene.quirks and source.chance(40):
        content = content_bytes(spec)
        padded = content + source.choice((1, 16, content))
        return MambaSpec(**{**fields, "page_size_padded": padded})
    return spec


def mamba_block(source: Source, scene: Scene) -> int:
    """Tokens of a state's block. In mode ``none`` a request has one state, so its block covers the whole length."""
    if scene.mamba_mode == "none":
        return scene.model_len + (source.choice((0, 1, 16)) if source.chance(20) else 0)
    return scene.block_size * (source.choice((1, 2, 3)) if source.chance(25) else 1)


def _odd_heads(source: Source, _scene: Scene, kind: str, fields: Fields) -> None:
    if kind not in LATENT_KINDS:
        fields["num_kv_heads"] = source.choice(ODD_HEADS)


def _free_dtype(source: Source, _scene: Scene, _kind: str, fields: Fields) -> None:
    fields["dtype"] = source.choice(RARE_DTYPES)


def _value_size(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if kind not in LATENT_KINDS and scene.shape.vocabulary.knows(kind, "head_size_v"):
        fields["head_size_v"] = source.choice((fields["head_size"] // 2, 0, 192))


def _padded(source: Source, _scene: Scene, kind: str, fields: Fields) -> None:
    # An alignment pads by itself, and would override what is stated here.
    if fields.get("alignment") is None:
        content = content_bytes(SPEC_CLASSES[kind](**fields))
        fields["page_size_padded"] = content + source.choice((1, 64, 512, content))


def _stride(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if scene.shape.vocabulary.knows(kind, "block_stride_alignment"):
        fields["block_stride_alignment"] = source.choice((512, 1152, 18_432, 3))


def _stride_blocks(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if scene.shape.vocabulary.multiple_of and scene.shape.vocabulary.knows(kind, "block_stride_alignment"):
        fields["block_stride_alignment"] = MultipleOf(multiple_of=source.choice((64, 16, 24)))


def _compressed(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    block: int = fields["block_size"]
    ratios = [ratio for ratio in (2, 4, 8, 128) if block % ratio == 0]
    if ratios and scene.shape.vocabulary.knows(kind, "tokens_per_state"):
        fields["tokens_per_state"] = source.choice(ratios)


def _fraction(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    # Block pooling stores several states for a token; only attention that is not latent does it.
    if scene.shape.vocabulary.fractions and kind not in LATENT_KINDS:
        fields["tokens_per_state"] = source.choice(("1/2", "1/4", "2/3"))


def _packed_state(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if kind in LATENT_KINDS or not scene.shape.vocabulary.knows(kind, "state_content_bytes"):
        return
    width = DTYPE_BYTES[fields["dtype"]]
    fields["state_content_bytes"] = 2 * fields["head_size"] * width + source.choice((8, 4, 1))
    if source.chance(30):
        fields["num_head_slots"] = source.choice((1, 2 * fields["num_kv_heads"]))


def _quantised(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    modes = scene.shape.vocabulary.quant_modes[1:]
    if modes and scene.shape.vocabulary.knows(kind, "kv_quant_mode"):
        fields["kv_quant_mode"] = source.choice(modes)
        fields["dtype"] = source.choice(("int8", "uint8", "float8_e4m3fn"))


def _tp_shards(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if scene.shape.vocabulary.knows(kind, "max_tp_shards"):
        fields["max_tp_shards"] = source.choice((1, 2, 8))


def _recorded_window(source: Source, _scene: Scene, kind: str, fields: Fields) -> None:
    if kind in FULL_KINDS:
        field = source.choice(("sliding_window", "attention_chunk_size"))
        fields.pop("attention_chunk_size" if field == "sliding_window" else "sliding_window", None)
        fields[field] = source.choice((1024, 128))


def _non_causal(_source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if kind in FULL_KINDS and scene.shape.vocabulary.knows(kind, "non_causal"):
        fields["non_causal"] = True


def _role(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    field, value = source.choice(
        (("cache_role", "indexer"), ("is_index_group_leader", True), ("non_causal_multi_token_decode", True))
    )
    if kind == "mla" and scene.shape.vocabulary.knows(kind, field):
        fields[field] = value


def _version(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if kind in LATENT_KINDS:
        field, value = source.choice((("model_version", "deepseek_v4"), ("cache_dtype_str", "fp8_ds_mla")))
        if scene.shape.vocabulary.knows(kind, field):
            fields[field] = value


def _alignment(source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if kind in LATENT_KINDS and scene.shape.vocabulary.knows(kind, "alignment"):
        fields["alignment"] = source.choice((576, 512, 1024))


def _replay(_source: Source, scene: Scene, kind: str, fields: Fields) -> None:
    if scene.shape.vocabulary.knows(kind, "bounded_replay"):
        fields["bounded_replay"] = True


ATTENTION_QUIRKS: dict[str, Callable[[Source, Scene, str, Fields], None]] = {
    "odd_heads": _odd_heads,
    "value_size": _value_size,
    "padded": _padded,
    "stride": _stride,
    "stride_blocks": _stride_blocks,
    "compressed": _compressed,
    "fraction": _fraction,
    "packed_state": _packed_state,
    "quantised": _quantised,
    "tp_shards": _tp_shards,
    "recorded_window": _recorded_window,
    "non_causal": _non_causal,
    "role": _role,
    "version": _version,
    "alignment": _alignment,
    "replay": _replay,
    "free_dtype": _free_dtype,
}
