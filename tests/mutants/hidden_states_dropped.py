"""Hidden-state layers are set aside and never brought back."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/53243"
SEEN_BY = ("G1", "reference.group")


def apply(planner):
    @plant(planner, "get_kv_cache_groups")
    def _(original, *args, **kwargs):
        groups = original(*args, **kwargs)
        kept = [
            group
            for group in groups
            if len(groups) == 1 or not isinstance(group.kv_cache_spec, planner.HiddenStateCacheSpec)
        ]
        return kept or groups
