"""A wrapper bills the blocks of its first member: its members need the same token slots, so any says the same."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "equivalent"
REPORT = ""
SEEN_BY = ("nothing",)


def apply(planner):
    @plant(planner.UniformTypeKVCacheSpecs, "max_memory_usage_pages")
    def _(_original, spec, config):
        first = spec.first_spec
        return -(-first.max_memory_usage_bytes(config) // first.page_size_bytes)
