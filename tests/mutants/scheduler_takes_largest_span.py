"""The scheduler's block is the largest span, which not every group's blocks end at."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/56396"
SEEN_BY = ("S1", "reference.size")


def apply(planner):
    rewrite(planner, "resolve_kv_cache_block_sizes", instead("math.lcm(*group_block_sizes)", "max(group_block_sizes)"))
