"""One replicated group alone: the scheduler's block is still multiplied by dcp."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/310"
SEEN_BY = ("S1", "reference.size")


def apply(planner):
    rewrite(planner, "resolve_kv_cache_block_sizes", instead("groups[0].kv_cache_spec.dcp_sharded", "True"))
