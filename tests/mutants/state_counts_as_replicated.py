"""Recurrent state, which no rank splits, is planned with the replicated draft instead of the target."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G6", "reference.group")


def apply(_planner):
    @plant(isolate, "is_replicated")
    def _(_original, spec):
        return not getattr(spec, "dcp_sharded", True)
