"""Merging attention with a sink forgets the sink's length."""

from dataclasses import replace

from vllm.v1.kv_cache_interface import SinkFullAttentionSpec

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/42464"
SEEN_BY = ("G4", "reference.group")


def apply(_planner):
    @plant(SinkFullAttentionSpec, "merge")
    def _(original, specs):
        return replace(original(specs), sink_len=None)
