"""A wrapper says replicated when any of its members is, but is made of one mode only."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "equivalent"
REPORT = ""
SEEN_BY = ("nothing",)


def apply(planner):
    @plant(planner.UniformTypeKVCacheSpecs, "__post_init__")
    def _(original, spec):
        original(spec)
        object.__setattr__(spec, "dcp_sharded", all(one.dcp_sharded for one in spec.kv_cache_specs.values()))
