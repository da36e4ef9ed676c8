"""At exactly 1.5 times the smallest collection the largest sets the width."""

import ast

from fuzz.planners.planting import compared, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/36684"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_kv_cache_groups_uniform_page_size", compared(ast.LtE, "min_num_layers * 1.5"))
