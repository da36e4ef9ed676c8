"""A worker with more memory takes the smaller block count, but its tensors are not planned again."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/25164"
SEEN_BY = ("M2", "M3", "reference.place")


def apply(planner):
    planned = {}

    @plant(planner, "get_kv_cache_configs")
    def _(original, *args, **kwargs):
        planned.clear()
        return original(*args, **kwargs)

    @plant(planner, "get_kv_cache_config_from_groups")
    def _(original, config, groups, available_memory):
        made = original(config, groups, available_memory)
        first = planned.setdefault(id(groups), made)
        first.num_blocks = made.num_blocks
        return first
