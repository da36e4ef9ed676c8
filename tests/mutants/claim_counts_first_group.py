"""The claimed concurrency counts the blocks of the first group only."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/47272"
SEEN_BY = ("C3", "C4", "reference.capacity")


def apply(planner):
    @plant(planner, "get_max_concurrency_for_kv_cache_config")
    def _(original, config, kv_cache_config):
        return original(config, replace(kv_cache_config, kv_cache_groups=kv_cache_config.kv_cache_groups[:1]))
