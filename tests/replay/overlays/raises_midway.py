"""A manager that meets an assertion after ten allocations."""

from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator


def apply(planner):
    allocate = KVCacheCoordinator.allocate_new_blocks
    state = {"calls": 0}

    def failing(self, *args, **kwargs):
        state["calls"] += 1
        assert state["calls"] % 10, "planted"
        return allocate(self, *args, **kwargs)

    KVCacheCoordinator.allocate_new_blocks = failing
