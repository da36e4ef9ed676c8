"""Pages are raised to the largest of the whole map before it is split, so the target carries the draft's page."""

import contextlib

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G6", "reference.group")


def apply(planner):
    @plant(isolate, "split")
    def _(original, specs):
        sharded, replicated = original(specs)
        if sharded and replicated:
            with contextlib.suppress(NotImplementedError):
                sharded, replicated = original(planner.unify_kv_cache_spec_page_size(specs))
        return sharded, replicated
