"""Recurrent state is not split down to the block that attention needs, so it widens every block."""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/issues/54703"
SEEN_BY = ("reference.group",)


def apply(planner):
    rewrite(planner, "_get_packed_kv_cache_groups", instead("anchor_bytes and is_state_bucket(spec)", "False"))
