"""An MLA page that does not divide the largest is padded like any other, although kernels index it by token rows."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/40388"
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        try:
            return original(specs)
        except NotImplementedError:
            largest = max(spec.page_size_bytes for spec in specs.values())
            return {name: replace(spec, page_size_padded=largest) for name, spec in specs.items()}
