"""Mixed pages are placed under layouts that cannot express them."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/47035"
SEEN_BY = ("M5", "reference.place")


def apply(planner):
    @plant(planner, "validate_kv_cache_layout")
    def _(_original, *_args):
        return None
