"""A window converted to full attention no longer records that it is one."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/32283"
SEEN_BY = ("G4", "reference.group")


def apply(planner):
    @plant(planner, "_promote_local_kv_cache_specs")
    def _(original, specs):
        made = original(specs)
        return {name: _whole(specs[name], spec) for name, spec in made.items()}


def _whole(before, after):
    return after if type(before) is type(after) else replace(after, sliding_window=None)
