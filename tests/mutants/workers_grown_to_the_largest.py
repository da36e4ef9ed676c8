"""All workers get the block count of the one with the most memory."""

from fuzz.planners.planting import called, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/25164"
SEEN_BY = ("M2", "reference.place")


def apply(planner):
    rewrite(planner, "get_kv_cache_configs", called("min", "max", "min_num_blocks"))
