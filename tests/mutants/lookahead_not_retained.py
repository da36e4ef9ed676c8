"""Windows keep no tokens for chained draft modules."""

from fuzz.planners.planting import assigned, rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("C1", "reference.group")


def apply(planner):
    rewrite(planner, "get_kv_cache_configs", assigned("extra_retained_tokens", "0"))
