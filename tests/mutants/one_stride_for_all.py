"""Every record gets the block stride of the first, whatever its own page."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/41657"
SEEN_BY = ("M3", "M4", "M6", "reference.place")


def apply(planner):
    @plant(planner, "get_kv_cache_config_from_groups")
    def _(original, *args, **kwargs):
        made = original(*args, **kwargs)
        for tensor in made.kv_cache_tensors:
            tensor.block_stride = made.kv_cache_tensors[0].block_stride
        return made
