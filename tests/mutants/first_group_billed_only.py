"""The check bills a request for the blocks of the first group only."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/47272"
SEEN_BY = ("C1", "reference.place")


def apply(planner):
    @plant(planner, "_max_memory_usage_bytes_from_groups")
    def _(original, config, groups):
        if not groups:
            return original(config, groups)
        spec = groups[0].kv_cache_spec
        blocks = planner.cdiv(spec.max_memory_usage_bytes(config), spec.page_size_bytes)
        return blocks * planner._pool_bytes_per_block(config, groups)
