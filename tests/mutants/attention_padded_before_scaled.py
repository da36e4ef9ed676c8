"""A page that divides the largest is padded instead of given a larger block: half the pool is wasted."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/40388"
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        raised = original(specs)
        return {name: _padded(planner, specs[name], spec) for name, spec in raised.items()}


def _padded(planner, before, after):
    if isinstance(before, planner.MLAAttentionSpec) or before.block_size == after.block_size:
        return after
    return replace(before, page_size_padded=after.page_size_bytes)
