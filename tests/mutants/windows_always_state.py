"""Windows are split like recurrent state even where a layer pattern has set the split."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/54703"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_packed_kv_cache_groups", instead("repeats_per_group is None", "True"))
