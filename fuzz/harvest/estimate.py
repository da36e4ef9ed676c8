"""Cache specs read off a configuration, for the common families, where vLLM's own classes cannot be built.

An estimate knows what the fields say: layers, heads, widths, windows, latent ranks. It does not know a backend's
block size or padding and says so: its grade is ``estimated``. Families with fields beyond these are declined.
"""

from __future__ import annotations

from typing import Any

from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.requests import Request
from oracles.case import (
    Case,
    FullSpec,
    Layer,
    MlaSpec,
    Provenance,
    Settings,
    SlidingWindowSpec,
    Spec,
    Worker,
    build_case,
)

BLOCK = 16
"""Tokens of vLLM's default block; on a CPU it is 128."""

CPU_BLOCK = 128

BEYOND = (
    "mamba_d_state", "ssm_state_size", "state_size", "linear_num_key_heads", "linear_attn_config", "conv_L_cache",
    "index_topk", "compress_ratios", "hybrid_override_pattern", "attention_chunk_size", "encoder_layers",
    "num_kv_shared_layers", "layers_block_type", "attn_layer_period",
)  # fmt: skip
"""Fields of families whose caches are not what heads, widths and windows say."""

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
WIDTH = ("hidden_size", "n_embd", "d_model")
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
LOCAL = ("sliding_attention", "local_attention", "sliding")


def estimate(request: Request, *, memory: int) -> Case:
    """A case from the fields of ``request.config``, with ``memory`` bytes on each worker.

    Raises:
        ConfigError: a field is missing, or belongs to a family that cannot be estimated; names it.
    """
    config = request.config.get("text_config") or request.config
    beyond = next((field for field in BEYOND if config.get(field) not in (None, False)), None)
    if beyond is not None:
        raise ConfigError(f"{beyond}: a model with this field cannot be estimated from its configuration")
    if request.draft is not None:
        raise ConfigError("--draft: a draft cannot be estimated from its configuration")
    count = _first(config, LAYERS)
    specs = [_spec(config, request, at) for at in range(count)]
    stage_of = [at * request.pp // count for at in range(count)]
    layers = [(Layer(name=f"model.layers.{at}", spec=0, stage=stage_of[at]), specs[at]) for at in range(count)]
    settings = Settings(
        workers=tuple(Worker(memory=memory, stage=stage) for stage in range(request.pp)), dcp=request.dcp,
        tp=request.tp, block_size=_block(request), model_len=request.max_model_len or _first(config, LENGTH),
        model_type=str(config.get("model_type", "unknown"))[:60],
    )  # fmt: skip
    return build_case(layers, settings, Provenance(
        title=f"{request.name}, {request.platform}", source="estimated by kvfuzz from the configuration alone",
        note="grade: estimated; block sizes, layout and padding are vLLM's defaults, not a backend's choice",
    ))  # fmt: skip


def _spec(config: dict[str, Any], request: Request, at: int) -> Spec:
    block = _block(request)
    if config.get("kv_lora_rank"):
        width = _first(config, ("kv_lora_rank",)) + _first(config, ("qk_rope_head_dim",))
        return MlaSpec(block_size=block, num_kv_heads=1, head_size=width)
    heads = _first(config, HEADS)
    of_keys = config.get("num_key_value_heads") or config.get("num_kv_heads") or heads
    size = config.get("head_dim") or _first(config, WIDTH) // heads
    shared = max(1, of_keys // request.tp)
    window = _window(config, at)
    if window is None:
        return FullSpec(block_size=block, num_kv_heads=shared, head_size=size)
    return SlidingWindowSpec(block_size=block, num_kv_heads=shared, head_size=size, sliding_window=window)


def _window(config: dict[str, Any], at: int) -> int | None:
    """The window of layer ``at``, if it has one."""
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return None
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and at < len(kinds):
        return int(window) if kinds[at] in LOCAL else None
    every = config.get("sliding_window_pattern")
    if isinstance(every, int) and every > 0:
        return None if (at + 1) % every == 0 else int(window)
    return int(window)


def _block(request: Request) -> int:
    return request.block_size or (CPU_BLOCK if request.platform == "cpu" else BLOCK)


def _first(config: dict[str, Any], names: tuple[str, ...]) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    raise ConfigError(f"{names[0]}: missing or no positive whole number; an estimate needs it")
