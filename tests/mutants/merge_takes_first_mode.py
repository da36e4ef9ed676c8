"""Full layers of equal geometry merge whatever their modes, and the group takes the first layer's."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G2", "reference.group")


def apply(planner):
    @plant(planner.FullAttentionSpec, "merge")
    def _(original, specs):
        return original([replace(spec, dcp_sharded=specs[0].dcp_sharded) for spec in specs])
