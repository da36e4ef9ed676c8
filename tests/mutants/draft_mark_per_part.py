"""Draft groups are marked in each part by itself, so the positional rule marks the last target layer as a draft's."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G12", "reference.group")


def apply(_planner):
    @plant(isolate._Annotators, "__enter__")
    def _(_original, held):
        return held

    @plant(isolate._Annotators, "run_on_all")
    def _(_original, *_args):
        return None
