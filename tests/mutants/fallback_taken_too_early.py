"""Windows beside MLA are allocated in full even where their pages can be unified."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/40388"
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        if planner._try_get_full_allocation_fallback_groups(specs) is not None:
            raise NotImplementedError("pages are not unified")
        return original(specs)
