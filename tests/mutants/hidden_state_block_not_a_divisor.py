"""A hidden-state block is the largest that fits its page, whether or not it divides the other groups' blocks."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/51016"
SEEN_BY = ("S2", "reference.group")


def apply(planner):
    @plant(planner, "_largest_divisor_at_most")
    def _(_original, value, limit):
        return min(value, limit)
