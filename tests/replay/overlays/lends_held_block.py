"""A pool that hands out one block that another request still holds, as if it were free."""

from vllm.v1.core.block_pool import BlockPool


def apply(planner):
    get = BlockPool.get_new_blocks
    state = {"calls": 0, "last": None}

    def lend(self, num_blocks):
        blocks = get(self, num_blocks)
        state["calls"] += 1
        if state["calls"] % 7 == 0 and blocks and state["last"] is not None and state["last"].ref_cnt == 1:
            held = state["last"]
            self.free_blocks([blocks[-1]])
            blocks = [*blocks[:-1], held]
        state["last"] = blocks[-1] if blocks else None
        return blocks

    BlockPool.get_new_blocks = lend
