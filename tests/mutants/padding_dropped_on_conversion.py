"""A window converted to full attention loses its stated page padding."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/42464"
SEEN_BY = ("G5", "reference.group")


def apply(planner):
    @plant(planner, "_promote_local_kv_cache_specs")
    def _(original, specs):
        made = original(specs)
        return {name: _bare(specs[name], spec) for name, spec in made.items()}


def _bare(before, after):
    return after if type(before) is type(after) else replace(after, page_size_padded=None)
