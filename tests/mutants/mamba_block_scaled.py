"""A recurrent state raised to a larger page gets a larger block too."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/43626"
SEEN_BY = ("G5", "reference.group")


def apply(planner):
    @plant(planner, "unify_kv_cache_spec_page_size")
    def _(original, specs):
        return {name: _scaled(planner, specs[name], spec) for name, spec in original(specs).items()}


def _scaled(planner, before, after):
    ratio = after.page_size_bytes // before.page_size_bytes
    return replace(after, block_size=after.block_size * ratio) if isinstance(after, planner.MambaSpec) else after
