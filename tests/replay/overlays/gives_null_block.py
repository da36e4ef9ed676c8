"""A pool whose every fifth allocation has the null block in it."""

from vllm.v1.core.block_pool import BlockPool


def apply(planner):
    get = BlockPool.get_new_blocks

    def with_null(self, num_blocks):
        blocks = get(self, num_blocks)
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 5 == 0 and blocks:
            self.free_blocks([blocks[-1]])
            blocks = [*blocks[:-1], self.null_block]
        return blocks

    BlockPool.get_new_blocks = with_null
