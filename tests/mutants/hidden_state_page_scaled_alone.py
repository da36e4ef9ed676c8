"""Where one hidden-state entry is larger than the common page, its own page is scaled but not the other groups'."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/51016"
SEEN_BY = ("reference.group",)


def apply(planner):
    @plant(planner, "_ensure_min_page_size")
    def _(original, groups, common_page, hidden):
        return groups, original(groups, common_page, hidden)[1]
