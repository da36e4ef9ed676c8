"""Merging full layers forgets the stride alignment that their backend asked for."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/pull/42464"
SEEN_BY = ("G4", "M7", "reference.group")


def apply(planner):
    @plant(planner.FullAttentionSpec, "merge")
    def _(original, specs):
        return replace(original(specs), block_stride_alignment=None)
