"""A window is billed without the block that it straddles while it slides."""

from vllm.v1.kv_cache_interface import SlidingWindowSpec

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/47272"
SEEN_BY = ("C1", "C4", "reference.place")


def apply(_planner):
    @plant(SlidingWindowSpec, "max_admission_blocks_per_request")
    def _(original, *args, **kwargs):
        return original(*args, **kwargs) - 1
