"""Harvesting with vLLM's own classes; importing them takes seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.models import model_case
from fuzz.harvest.process import Harvester
from fuzz.harvest.requests import Draft, Request
from fuzz.harvest.samples import case_from_harvest
from fuzz.planners.trees import Config, open_launch
from oracles.case import FullSpec, MambaSpec, SlidingWindowSpec, kind_of

pytestmark = pytest.mark.slow

LLAMA: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 6, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 1024,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
SPARSE: dict[str, Any] = {
    "model_type": "deepseek_v32", "architectures": ["DeepseekV32ForCausalLM"], "hidden_size": 1024,
    "intermediate_size": 2048, "moe_intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 16,
    "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": 256, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "index_head_dim": 128,
    "index_n_heads": 16, "index_topk": 512, "vocab_size": 1024, "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}  # fmt: skip
DFLASH: dict[str, Any] = {
    **LLAMA, "model_type": "qwen3", "architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "head_dim": 128,
    "block_size": 16, "num_target_layers": 6, "dflash_config": {"mask_token_id": 7, "target_layer_ids": [1, 3]},
}  # fmt: skip


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[Harvester]:
    with Harvester(open_launch("installed", Config()), "cpu") as harvester:
        yield harvester


@pytest.fixture(scope="module")
def on_sm90() -> Iterator[Harvester]:
    with Harvester(open_launch("installed", Config()), "sm90") as harvester:
        yield harvester


def request(config: dict[str, Any], platform: str = "cpu", **values: Any) -> Request:
    return Request(name="m", config=config, platform=platform, **values)


def test_a_dense_model_on_the_cpu_is_exact(on_cpu: Harvester) -> None:
    made = model_case(on_cpu, request(LLAMA))
    assert made.grade == "exact"
    assert made.case.specs == (FullSpec(block_size=128, num_kv_heads=8, head_size=128),)
    assert [layer.name for layer in made.case.layers] == [f"model.layers.{at}.self_attn.attn" for at in range(6)]


def test_a_harvest_of_vllms_engine_is_met_field_by_field(on_cpu: Harvester) -> None:
    sample = json.loads((Path(__file__).parent / "data" / "qwen3-next-80b_cpu.json").read_text())
    reply = on_cpu.harvest(request(sample["model_config"]))
    assert reply.harvest is not None
    assert reply.harvest["specs"] == sample["specs"]
    assert reply.harvest["stages"] == sample["stages"]
    assert reply.harvest["kv_cache_layout"] == sample["kv_cache_layout"]
    assert reply.harvest["backends"] == sample["backends"]


def test_a_hybrid_is_seen_otherwise_by_the_workers_than_by_the_engine_core(on_cpu: Harvester) -> None:
    sample = json.loads((Path(__file__).parent / "data" / "qwen3-next-80b_cpu.json").read_text())
    made = model_case(on_cpu, request(sample["model_config"]))
    assert made.workers is not None
    assert (made.case.settings.block_size, made.workers.settings.block_size) == (128, 640)
    assert {type(spec) for spec in made.case.specs} == {MambaSpec, FullSpec}


def test_pipeline_stages_are_built_one_by_one(on_cpu: Harvester) -> None:
    case = model_case(on_cpu, request(LLAMA, pp=2, tp=2)).case
    assert [layer.stage for layer in case.layers] == [0, 0, 0, 1, 1, 1]
    assert {spec.num_kv_heads for spec in case.specs if isinstance(spec, FullSpec)} == {4}


def test_what_vllm_refuses_is_refused_in_its_words(on_cpu: Harvester) -> None:
    with pytest.raises(ConfigError, match="must be divisible by tensor parallel size"):
        model_case(on_cpu, request(LLAMA, tp=3))
    with pytest.raises(ConfigError, match="Sparse Attention is not supported on CPU"):
        model_case(on_cpu, request(SPARSE))


def test_a_missing_key_is_named(on_cpu: Harvester) -> None:
    config = {"model_type": "glm4_moe_lite", "architectures": ["Glm4MoeLiteForCausalLM"]}
    with pytest.raises(ConfigError, match="lacks 'first_k_dense_replace'"):
        model_case(on_cpu, request(config))


def test_a_model_beyond_its_time_is_given_up_and_the_next_one_is_served() -> None:
    with Harvester(open_launch("installed", Config()), "cpu", seconds=0.05) as harvester:
        reply = harvester.harvest(request(LLAMA))
        assert (reply.outcome, reply.reason) == ("failed", "not finished within 0.05 s")
        assert harvester.harvest(request(LLAMA)).outcome == "failed"


def test_a_model_beyond_its_memory_is_given_up() -> None:
    with Harvester(open_launch("installed", Config()), "cpu", memory=2**20) as harvester:
        reply = harvester.harvest(request({**LLAMA, "num_hidden_layers": 400}))
    assert (reply.outcome, reply.reason) == ("failed", "out of memory")


def test_a_model_beyond_its_time_is_estimated_aloud() -> None:
    with Harvester(open_launch("installed", Config()), "cpu", seconds=0.05) as harvester:
        made = model_case(harvester, request(LLAMA))
    assert (made.grade, made.degraded) == ("estimated", "not finished within 0.05 s")
    assert made.case.specs == (FullSpec(block_size=128, num_kv_heads=8, head_size=128),)


def test_sparse_latent_attention_on_a_faked_device_has_its_indexer(on_sm90: Harvester) -> None:
    made = model_case(on_sm90, request(SPARSE, "sm90"))
    assert made.grade == "simulated"
    assert "platform faked: CUDA sm90" in made.notes
    assert sorted((kind_of(spec), spec.block_size) for spec in made.case.specs) == [("mla", 64), ("mla", 64)]
    assert len(made.case.layers) == 6


def test_a_dflash_draft_is_replicated_under_dcp(on_sm90: Harvester) -> None:
    asked = request(LLAMA, "sm90", tp=16, dcp=2, draft=Draft(method="dflash", tokens=7, config=DFLASH))
    case = model_case(on_sm90, asked).case
    assert [layer.draft for layer in case.layers] == [False] * 6 + [True] * 2
    assert [spec.replicated for spec in case.specs if isinstance(spec, FullSpec)] == [False, True]


def test_windows_are_windows(on_sm90: Harvester) -> None:
    config = {
        **LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096,
    }  # fmt: skip
    reply = on_sm90.harvest(request(config, "sm90"))
    assert reply.harvest is not None
    assert case_from_harvest(reply.harvest).specs == (
        SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=4096),
    )
