"""Of two pattern lengths with equal padding the smaller is taken: more groups than needed."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/51742"
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "_approximate_gcd")
    def _(original, values, *, lower_bound=None):
        best = original(values, lower_bound=lower_bound)
        padding = sum(-value % best for value in values)
        lowest = max(1, lower_bound or 1)
        return next(d for d in range(lowest, best + 1) if sum(-value % d for value in values) == padding)
