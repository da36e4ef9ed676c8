"""A tree of vLLM 0.33 in which a model's class and builders group layers; how they do depends on the model length."""

from __future__ import annotations

import difflib
from pathlib import Path

from fuzz.planners import fetch

MODELS = Path("vllm", "model_executor", "models", "llama.py")
BUILDERS = Path("vllm", "v1", "core", "kvfuzz_builders.py")

ALONE, BY_CONFIG, BY_PLATFORM, LOSING, SHUT, BY_NAME = 8192, 4096, 2048, 1024, 512, 256
"""Model lengths: a group for each layer; one where the configuration has as many layers, else two; what needs a package
of another platform; a layer lost; a refusal; one for a model's own names of layers.
"""

GROUPING = f"""

def kvfuzz_groups(vllm_config, kv_cache_spec):
    from vllm.v1.kv_cache_interface import KVCacheGroupSpec

    length = vllm_config.model_config.max_model_len
    names = list(kv_cache_spec)
    if length == {BY_PLATFORM}:
        import torch_of_another_platform  # noqa: F401
    if length == {SHUT}:
        raise NotImplementedError("not for models of this length")
    if length == {LOSING}:
        names = names[1:]
    if length == {BY_CONFIG}:
        whole = vllm_config.model_config.hf_config.num_hidden_layers == len(names)
        parts = [names] if whole else [names[::2], names[1::2]]
    elif length == {BY_NAME} and names[0].startswith("model."):
        parts = [names]
    else:
        parts = [[name] for name in names]
    return [KVCacheGroupSpec(part, kv_cache_spec[part[0]]) for part in parts]
"""
HOOK = (
    GROUPING
    + """

LlamaForCausalLM.get_kv_cache_groups = classmethod(lambda cls, config, specs: kvfuzz_groups(config, specs))
"""
)
BUILDER = (
    """from dataclasses import replace

from vllm.v1.core.kv_cache_planning import DefaultKVCacheConfigBuilder
"""
    + GROUPING
    + """

class Alone(DefaultKVCacheConfigBuilder):
    def get_kv_cache_groups(self, vllm_config, kv_cache_spec):
        return kvfuzz_groups(vllm_config, kv_cache_spec)


class AsItIs(DefaultKVCacheConfigBuilder):
    pass


class Apart(DefaultKVCacheConfigBuilder):
    def _get_pool_bytes_per_block(self, vllm_config, kv_cache_groups):
        return 2**20

    def get_kv_cache_config_from_groups(self, vllm_config, kv_cache_groups, num_blocks):
        made = super().get_kv_cache_config_from_groups(vllm_config, kv_cache_groups, num_blocks)
        (tensor,) = made.kv_cache_tensors
        small, large = replace(tensor, layers=tensor.layers[:2]), replace(tensor, layers=tensor.layers[2:])
        made.kv_cache_tensors = [small, replace(large, size=2 * large.size)]
        return made


class Nothing:
    pass
"""
)


def owning_diff(folder: Path) -> Path:
    """A diff over vLLM 0.33.0 that gives ``LlamaForCausalLM`` the hook, and the module of builders."""
    tree = fetch.wheel_tree("0.33.0")
    before = (tree / MODELS).read_text()
    text = "".join(
        "".join(difflib.unified_diff(old, new, f"a/{path}" if old else "/dev/null", f"b/{path}"))
        for path, old, new in (
            (MODELS, before.splitlines(keepends=True), (before + HOOK).splitlines(keepends=True)),
            (BUILDERS, [], BUILDER.splitlines(keepends=True)),
        )
    )
    diff = folder / "owners.diff"
    diff.write_text(text)
    return diff
