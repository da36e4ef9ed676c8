"""Workers are not shrunk to the smallest block count."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/25164"
SEEN_BY = ("M2", "R1", "reference.place")


def apply(planner):
    rewrite(planner, "get_kv_cache_configs", instead("kv_cache_config.num_blocks == min_num_blocks", "True"))
