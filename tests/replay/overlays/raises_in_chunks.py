"""A scheduler whose rule for the length of a chunk meets an assertion at a prompt's second chunk."""

from vllm.v1.core.sched.scheduler import Scheduler


def apply(planner):
    split = Scheduler._mamba_block_aligned_split

    def failing(self, request, num_new_tokens, *args, **kwargs):
        assert request.num_computed_tokens == 0, "planted"
        return split(self, request, num_new_tokens, *args, **kwargs)

    Scheduler._mamba_block_aligned_split = failing
