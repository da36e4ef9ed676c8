"""The positional rule marks the group of the first layer instead of the last."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("G12", "reference.group")


def apply(planner):
    rewrite(planner, "_annotate_eagle_groups", instead("reversed(kv_cache_spec)", "iter(kv_cache_spec)"))
