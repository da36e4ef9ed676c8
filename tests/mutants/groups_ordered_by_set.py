"""The order of groups follows a set of names: another hash seed, another plan."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "get_kv_cache_groups")
    def _(original, *args, **kwargs):
        by_name = {group.layer_names[0]: group for group in original(*args, **kwargs)}
        return [by_name[name] for name in set(by_name)]
