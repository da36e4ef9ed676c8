"""A block is as large as all groups together instead of the widest: most of the pool is never used."""

import ast

from fuzz.planners.planting import rewrite

BASE = "native"
KIND = "loud"
REPORT = ""
SEEN_BY = ("M2", "reference.place")


def apply(planner):
    rewrite(planner, "_get_kv_cache_bytes_per_block", _summed)


def _summed(node):
    if isinstance(node, ast.Assign) and node.targets[0].id == "bytes_per_block":
        return ast.Assign(targets=node.targets, value=_sum_of(node.value))
    return None


def _sum_of(call):
    return ast.Call(func=ast.Name(id="sum", ctx=ast.Load()), args=call.args, keywords=[])
