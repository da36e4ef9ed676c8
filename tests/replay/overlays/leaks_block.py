"""A manager that forgets the first block of every request it frees."""

from vllm.v1.core.single_type_kv_cache_manager import SingleTypeKVCacheManager


def apply(planner):
    pop = SingleTypeKVCacheManager.pop_blocks_for_free

    def forgetful(self, request_id):
        return pop(self, request_id)[1:]

    SingleTypeKVCacheManager.pop_blocks_for_free = forgetful
