"""Layers that differ only in what a group reconciles (a recorded window) are no longer joined in one collection."""

import ast

from fuzz.planners.planting import rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_kv_cache_groups_uniform_page_size", _never)


def _never(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "zip":
        return ast.Tuple(elts=[], ctx=ast.Load())
    return None
