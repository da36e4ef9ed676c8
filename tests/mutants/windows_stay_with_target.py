"""Only full attention counts as replicated; a replicated window is planned with the target."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "loud"
REPORT = "https://github.com/local-inference-lab/vllm/pull/519"
SEEN_BY = ("G6", "reference.group")


def apply(_planner):
    @plant(isolate, "is_replicated")
    def _(original, spec):
        return original(spec) and not hasattr(spec, "extra_retained_tokens")
