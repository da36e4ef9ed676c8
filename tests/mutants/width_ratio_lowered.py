"""The ratio up to which the largest collection sets the width is 1.25, as in older releases."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/29303"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_kv_cache_groups_uniform_page_size", instead("1.5", "1.25"))
