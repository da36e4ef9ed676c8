"""A worker's copy orders that go to a block which another request reads."""

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy


def apply(planner):
    take = KVCacheManager.take_kv_cache_block_copies

    def careless(self):
        copies, retained = take(self)
        self.calls = getattr(self, "calls", 0) + 1
        held = [block.block_id for block in self.block_pool.blocks[1:] if block.ref_cnt]
        if self.calls % 4 == 0 and len(held) > 3:
            copies = [*copies, KVCacheBlockCopy(src_block_id=held[1], dst_block_id=held[0])]
        return copies, retained

    KVCacheManager.take_kv_cache_block_copies = careless
