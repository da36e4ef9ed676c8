"""The check looks at the memory there is, the pool has the configured number of blocks."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/35541"
SEEN_BY = ("C1", "reference.place")


def apply(planner):
    rewrite(planner, "get_kv_cache_configs", instead("override is not None", "False"))
