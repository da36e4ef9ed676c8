"""The hash unit is the greatest common divisor even beside recurrent state that is not kept at aligned positions."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/56396"
SEEN_BY = ("reference.size",)


def apply(planner):
    rewrite(planner, "resolve_kv_cache_block_sizes", instead("spec.mamba_cache_mode != 'align'", "False"))
