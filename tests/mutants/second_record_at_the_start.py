"""The offset of a group's second record is forgotten: its layers lie over the first's."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("M4", "reference.place")


def apply(planner):
    @plant(planner, "get_kv_cache_config_from_groups")
    def _(original, *args, **kwargs):
        made = original(*args, **kwargs)
        for tensor in made.kv_cache_tensors:
            tensor.offset = 0
        return made
