"""The block count is rounded up: the last block lies past the memory that there is."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("M2", "reference.place")


def apply(planner):
    rewrite(
        planner,
        "get_kv_cache_config_from_groups",
        instead("available_memory // bytes_per_block", "cdiv(available_memory, bytes_per_block)"),
    )
