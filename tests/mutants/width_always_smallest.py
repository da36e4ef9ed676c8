"""The smallest collection always sets the width: 13 layers beside 12 come in two groups."""

from fuzz.planners.planting import assigned, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/29303"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_kv_cache_groups_uniform_page_size", assigned("max_num_layers", "2 * min_num_layers"))
