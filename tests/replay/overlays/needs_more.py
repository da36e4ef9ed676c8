"""Full attention that takes a block more than it is sized for."""

from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager


def apply(planner):
    count = FullAttentionManager.get_num_blocks_to_allocate

    def more(self, *args, **kwargs):
        return count(self, *args, **kwargs) + 1

    FullAttentionManager.get_num_blocks_to_allocate = more
