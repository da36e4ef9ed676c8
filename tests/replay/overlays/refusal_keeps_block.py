"""A manager that takes a block before it refuses an allocation."""

from vllm.v1.core.kv_cache_manager import KVCacheManager


def apply(planner):
    allocate = KVCacheManager.allocate_slots

    def greedy(self, *args, **kwargs):
        given = allocate(self, *args, **kwargs)
        if given is None and self.block_pool.get_num_free_blocks():
            self.block_pool.get_new_blocks(1)
        return given

    KVCacheManager.allocate_slots = greedy
