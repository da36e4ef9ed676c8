"""A wrapper takes layers of both modes, and says replicated as soon as any of its members is."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/50823"
SEEN_BY = ("G2", "reference.group")


def apply(planner):
    @plant(planner.UniformTypeKVCacheSpecs, "is_uniform_type")
    def _(original, specs):
        modes = {spec.dcp_sharded for spec in specs.values()}
        if len(modes) < 2 or not all(isinstance(spec, planner.AttentionSpec) for spec in specs.values()):
            return original(specs)
        return original({name: replace(spec, dcp_sharded=False) for name, spec in specs.items()})

    @plant(planner.UniformTypeKVCacheSpecs, "__post_init__")
    def _(original, spec):
        original(spec)
        modes = [member.dcp_sharded for member in spec.kv_cache_specs.values()]
        object.__setattr__(spec, "dcp_sharded", all(modes))
