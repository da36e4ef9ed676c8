"""A block is rounded to the largest stride alignment of its layers instead of a common multiple of all."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("M7", "reference.place")


def apply(planner):
    rewrite(planner, "_get_kv_cache_bytes_per_block", instead("math.lcm(*alignments)", "max(alignments)"))
