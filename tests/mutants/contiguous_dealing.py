"""A collection is cut into consecutive runs instead of dealt round-robin, which leaves groups empty on a stage."""

import ast

from fuzz.planners.planting import rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/23974"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_kv_cache_groups_uniform_page_size", _runs)


def _runs(node):
    if isinstance(node, ast.Slice) and node.step is not None:
        run = ast.parse("x[i * group_size : (i + 1) * group_size]", mode="eval").body
        return run.slice
    return None
