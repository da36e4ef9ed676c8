"""The packed path returns before draft groups are marked."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("G12", "reference.group")


def apply(planner):
    mark = planner._annotate_eagle_groups

    @plant(planner, "_get_packed_kv_cache_groups")
    def _(original, *args, **kwargs):
        planner._annotate_eagle_groups = lambda *_args, **_kwargs: None
        try:
            return original(*args, **kwargs)
        finally:
            planner._annotate_eagle_groups = mark
