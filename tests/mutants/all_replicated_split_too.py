"""A map of replicated layers only is not left alone: its windows are planned apart from its other layers."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G7", "reference.group")


def apply(_planner):
    @plant(isolate, "split")
    def _(original, specs):
        sharded, replicated = original(specs)
        if not sharded and not any(hasattr(spec, "shapes") for spec in specs.values()):
            sharded = {name: spec for name, spec in specs.items() if not hasattr(spec, "extra_retained_tokens")}
            replicated = {name: spec for name, spec in specs.items() if name not in sharded}
        return sharded, replicated
