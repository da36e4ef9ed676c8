"""A manager that says of every hit that it is one token longer."""

from vllm.v1.core.kv_cache_manager import KVCacheManager


def apply(planner):
    find = KVCacheManager.get_computed_blocks

    def longer(self, request):
        blocks, hit, *rest = find(self, request)
        return (blocks, hit + 1 if hit else 0, *rest)

    KVCacheManager.get_computed_blocks = longer
