"""A configured prefix-match unit is ignored where there are several groups."""

from fuzz.planners.planting import assigned, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/56396"
SEEN_BY = ("reference.size",)


def apply(planner):
    rewrite(planner, "resolve_kv_cache_block_sizes", assigned("requested", "None"))
