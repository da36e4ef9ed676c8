"""Windows of two sizes merge; the group frees blocks by the first layer's window."""

from dataclasses import replace

from vllm.v1.kv_cache_interface import SlidingWindowSpec

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("G3", "G4", "reference.group")


def apply(_planner):
    @plant(SlidingWindowSpec, "merge")
    def _(original, specs):
        if not all(isinstance(spec, SlidingWindowSpec) for spec in specs):
            return original(specs)
        return original([replace(spec, sliding_window=specs[0].sliding_window) for spec in specs])
