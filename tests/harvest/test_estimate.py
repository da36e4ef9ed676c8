"""Estimates: what the fields of a configuration say, and what they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.estimate import estimate
from fuzz.harvest.requests import Request
from oracles.case import FullSpec, MlaSpec, SlidingWindowSpec

DENSE = {
    "model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 4096, "max_position_embeddings": 8192,
}  # fmt: skip


def made(config: dict[str, Any], **values: Any) -> Any:
    return estimate(Request(name="m", config=config, platform="sm90", **values), memory=2**30)


def test_a_dense_model() -> None:
    case = made(DENSE)
    assert case.specs == (FullSpec(block_size=16, num_kv_heads=8, head_size=128),)
    assert len(case.layers) == 4
    assert case.settings.model_len == 8192


def test_tensor_parallelism_divides_the_heads_down_to_one() -> None:
    assert made(DENSE, tp=4).specs[0].num_kv_heads == 2
    assert made(DENSE, tp=16).specs[0].num_kv_heads == 1


def test_windows_stand_where_the_layer_types_say() -> None:
    types = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    case = made({**DENSE, "sliding_window": 512, "layer_types": types})
    window = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=512)
    full = FullSpec(block_size=16, num_kv_heads=8, head_size=128)
    assert [case.spec_of(layer) for layer in case.layers] == [window, full, window, full]


def test_a_pattern_counts_the_layers_to_the_next_full_one() -> None:
    case = made({**DENSE, "sliding_window": 512, "sliding_window_pattern": 4})
    assert [isinstance(case.spec_of(layer), FullSpec) for layer in case.layers] == [False, False, False, True]


def test_latent_attention_is_rank_and_rotary_part() -> None:
    case = made({**DENSE, "kv_lora_rank": 512, "qk_rope_head_dim": 64})
    assert case.specs == (MlaSpec(block_size=16, num_kv_heads=1, head_size=576),)


def test_pipeline_stages_share_the_layers() -> None:
    case = made(DENSE, pp=2)
    assert [layer.stage for layer in case.layers] == [0, 0, 1, 1]
    assert case.settings.stages == 2


def test_an_estimate_says_that_it_is_one() -> None:
    assert made(DENSE).provenance.note.startswith("grade: estimated;")


@pytest.mark.parametrize("field", ["mamba_d_state", "index_topk", "compress_ratios", "attention_chunk_size"])
def test_families_beyond_heads_and_windows_are_declined(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field}: a model with this field cannot be estimated"):
        made({**DENSE, field: 4})


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ConfigError, match="num_attention_heads: missing"):
        made({key: value for key, value in DENSE.items() if key != "num_attention_heads"})
