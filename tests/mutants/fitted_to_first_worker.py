"""An automatic model length is fitted to the first worker instead of the smallest."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("C1", "reference.place")


def apply(planner):
    @plant(planner, "_auto_fit_max_model_len")
    def _(original, config, groups, memory):
        original(config, groups[:1], memory[:1])
