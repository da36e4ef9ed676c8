"""Pages are unified to the smallest instead of the largest where blocks can be cut into whole parts."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/43626"
SEEN_BY = ("G4", "reference.group")


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        smallest = min((spec.page_size_bytes for spec in specs.values()), default=1)
        parts = {name: spec.page_size_bytes // smallest for name, spec in specs.items()}
        cut = {name: replace(spec, block_size=max(1, spec.block_size // parts[name])) for name, spec in specs.items()}
        return cut if all(spec.page_size_bytes == smallest for spec in cut.values()) else original(specs)
