"""Merging full layers forgets that they are replicated: the group says sharded."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G2", "G4", "reference.group")


def apply(planner):
    @plant(planner.FullAttentionSpec, "merge")
    def _(original, specs):
        return replace(original(specs), dcp_sharded=True)
