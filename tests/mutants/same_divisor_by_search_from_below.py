"""The largest divisor up to a limit, searched from one upward."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "equivalent"
REPORT = ""
SEEN_BY = ("nothing",)


def apply(planner):
    @plant(planner, "_largest_divisor_at_most")
    def _(_original, value, limit):
        return max(size for size in range(1, max(1, min(value, limit)) + 1) if value % size == 0 or size == 1)
