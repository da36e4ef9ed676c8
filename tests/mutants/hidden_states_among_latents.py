"""Hidden-state layers are not set aside: being latent, they are grouped and packed as MLA."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/53243"
SEEN_BY = ("reference.group", "G3")


class NoSuchSpec:
    pass


def apply(planner):
    @plant(planner, "get_kv_cache_groups")
    def _(original, *args, **kwargs):
        held, planner.HiddenStateCacheSpec = planner.HiddenStateCacheSpec, NoSuchSpec
        try:
            return original(*args, **kwargs)
        finally:
            planner.HiddenStateCacheSpec = held
