"""The replicated groups come first. The scheduler takes the first group for the target's."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G6", "reference.group")


def apply(planner):
    @plant(isolate, "split")
    def _(original, specs):
        sharded, replicated = original(specs)
        return replicated, sharded
