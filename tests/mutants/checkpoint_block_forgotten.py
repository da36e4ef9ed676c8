"""Recurrent state is billed without its prefill checkpoint."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("C1", "C4", "reference.capacity")


def apply(planner):
    @plant(planner.MambaSpec, "max_memory_usage_bytes")
    def _(original, spec, config):
        return original(replace(spec, num_prefill_checkpoint_blocks=0), config)
