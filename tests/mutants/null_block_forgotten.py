"""The check counts the null block as one that serves requests."""

from fuzz.planners.planting import assigned, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/47272"
SEEN_BY = ("C1", "reference.place")


def apply(planner):
    rewrite(planner, "get_kv_cache_configs", assigned("check_memory", "available_memory"))
