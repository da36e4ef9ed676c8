"""A replicated block is said to span block × dcp tokens, as if its positions were split."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/310"
SEEN_BY = ("S1", "G13", "reference.size")


def apply(planner):
    @plant(planner, "resolve_dcp_kv_block_size")
    def _(original, spec, dcp_world_size):
        if any(isinstance(one, planner.MambaSpec) for one in planner.iter_layer_specs(spec)):
            return original(spec, dcp_world_size)
        return spec.block_size * dcp_world_size
