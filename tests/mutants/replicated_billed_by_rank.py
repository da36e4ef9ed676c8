"""A replicated full layer is billed for its rank's share of the sequence, though it keeps all of it."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/ROCm/ATOM/pull/1995"
SEEN_BY = ("C1", "C4", "G13", "reference.capacity")


def apply(planner):
    @plant(planner.FullAttentionSpec, "max_memory_usage_bytes")
    def _(original, spec, config):
        return original(replace(spec, dcp_sharded=True), config)
