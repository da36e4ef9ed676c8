"""A second group whose requests get the blocks of the first."""

from vllm.v1.core.kv_cache_manager import KVCacheManager


def apply(planner):
    allocate = KVCacheManager.allocate_slots

    def sharing(self, *args, **kwargs):
        given = allocate(self, *args, **kwargs)
        first, second, *_ = self.coordinator.single_type_managers
        request = args[0].request_id
        ours, theirs = first.req_to_blocks[request], second.req_to_blocks[request]
        if given is not None and ours and theirs and theirs[-1] is not ours[-1]:
            self.block_pool.free_blocks([theirs[-1]])
            self.block_pool.touch([ours[-1]])
            theirs[-1] = ours[-1]
        return given

    KVCacheManager.allocate_slots = sharing
