"""The partition works on a copy of the map that it is given."""

from fuzz.planners import isolate
from fuzz.planners.planting import plant

BASE = "isolate"
KIND = "equivalent"
REPORT = ""
SEEN_BY = ("nothing",)


def apply(_planner):
    @plant(isolate, "split")
    def _(original, specs):
        return tuple(dict(part) for part in original(dict(specs)))
