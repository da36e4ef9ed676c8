"""A pool that hands out one block that another request still holds, as if it were free."""

from vllm.v1.core.block_pool import BlockPool


def apply(planner):
    get = BlockPool.get_new_blocks

    def lend(self, num_blocks):
        blocks = get(self, num_blocks)
        self.calls = getattr(self, "calls", 0) + 1
        held = getattr(self, "last", None)
        if self.calls % 7 == 0 and blocks and held is not None and held.ref_cnt == 1:
            self.free_blocks([blocks[-1]])
            blocks = [*blocks[:-1], held]
        self.last = blocks[-1] if blocks else None
        return blocks

    BlockPool.get_new_blocks = lend
