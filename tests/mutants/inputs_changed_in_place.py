"""A page is padded in the caller's own spec, which profiling and the backends use again."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/42464"
SEEN_BY = ("G10",)


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        raised = original(specs)
        for name, spec in raised.items():
            if spec.block_size == specs[name].block_size:
                object.__setattr__(specs[name], "page_size_padded", spec.page_size_padded)
        return raised
