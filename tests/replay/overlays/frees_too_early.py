"""A cache manager that gives back a window's blocks one block before they are out of sight."""

from vllm.v1.core.single_type_kv_cache_manager import SlidingWindowManager


def apply(planner):
    skipped = SlidingWindowManager.get_num_skipped_tokens

    def early(self, num_computed_tokens):
        return min(skipped(self, num_computed_tokens) + self.block_size, num_computed_tokens)

    SlidingWindowManager.get_num_skipped_tokens = early
