"""Groups that are never prefix-cached, such as rings, lower the hash unit."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/56396"
SEEN_BY = ("reference.size",)


def apply(planner):
    rewrite(planner, "resolve_kv_cache_block_sizes", instead("group.kv_cache_spec.prefix_cacheable", "True"))
