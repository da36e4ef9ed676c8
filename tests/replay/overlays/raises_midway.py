"""A manager that meets an assertion after ten allocations."""

from vllm.v1.core.kv_cache_coordinator import KVCacheCoordinator


def apply(planner):
    allocate = KVCacheCoordinator.allocate_new_blocks

    def failing(self, *args, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        assert self.calls % 10, "planted"
        return allocate(self, *args, **kwargs)

    KVCacheCoordinator.allocate_new_blocks = failing
