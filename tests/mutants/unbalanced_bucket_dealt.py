"""A bucket with unequal counts per page size is dealt as if they were equal; the surplus layers vanish."""

from fuzz.planners.planting import assigned, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/48256"
SEEN_BY = ("G1", "reference.group")


def apply(planner):
    rewrite(planner, "_get_packed_kv_cache_groups", assigned("balanced", "True"))
