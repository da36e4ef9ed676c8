"""The scheduler's block is the greatest common divisor of the spans and the hash unit their common multiple."""

from types import SimpleNamespace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/56396"
SEEN_BY = ("S1", "S2", "reference.size")


def apply(planner):
    exchanged = SimpleNamespace(lcm=planner.math.gcd, gcd=planner.math.lcm)

    @plant(planner, "resolve_kv_cache_block_sizes")
    def _(original, *args, **kwargs):
        held, planner.math = planner.math, exchanged
        try:
            return original(*args, **kwargs)
        finally:
            planner.math = held
