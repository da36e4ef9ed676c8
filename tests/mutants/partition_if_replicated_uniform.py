"""The map is split only when all replicated layers have one spec; a draft of two kinds is planned with the target."""

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
        return (sharded, replicated) if len(set(replicated.values())) == 1 else (specs, {})
