"""A record states the bytes of its own layers instead of the whole pool's."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/25164"
SEEN_BY = ("M2", "reference.place")


def apply(planner):
    @plant(planner, "get_kv_cache_config_from_groups")
    def _(original, *args, **kwargs):
        made = original(*args, **kwargs)
        count = len(made.kv_cache_tensors)
        for tensor in made.kv_cache_tensors[:-1] if count > 1 else ():
            tensor.size = max(tensor.layer_stride, tensor.block_stride) * len(tensor.layers)
        return made
