"""A manager that keeps a block of the last request: only when no other request is left."""

from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager


def apply(planner):
    pop = SingleTypeKVCacheManager.pop_blocks_for_free

    def forgetful(self, request_id):
        blocks = pop(self, request_id)
        return blocks if self.req_to_blocks else blocks[1:]

    SingleTypeKVCacheManager.pop_blocks_for_free = forgetful
