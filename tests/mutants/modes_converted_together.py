"""Without the hybrid manager, layers of both modes are converted as one map, so a mixed model is refused."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/42911"
SEEN_BY = ("reference.group", "G2")


def apply(planner):
    @plant(planner, "unify_hybrid_kv_cache_specs")
    def _(_original, specs):
        specs.update(planner._promote_local_kv_cache_specs(specs))
