"""Sharded and replicated layers are planned together again, as before the contract."""

from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G6", "reference.group")


def apply(planner):
    together = planner.get_kv_cache_groups.__wrapped__

    @plant(planner, "get_kv_cache_groups")
    def _(_original, *args, **kwargs):
        return together(*args, **kwargs)
