"""A group that is cut at a pipeline stage loses its draft mark there."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("G12", "reference.place")


def apply(planner):
    rewrite(planner, "_project_kv_cache_groups_to_worker", instead("bool(worker_layer_names)", "False"))
