"""A manager that meets an assertion near the end of the model length, where no short request comes."""

from vllm.v1.core.kv_cache_manager import KVCacheManager


def apply(planner):
    allocate = KVCacheManager.allocate_slots

    def failing(self, request, num_new_tokens, *args, **kwargs):
        assert request.num_computed_tokens + num_new_tokens < self.max_model_len - 2, "planted"
        return allocate(self, request, num_new_tokens, *args, **kwargs)

    KVCacheManager.allocate_slots = failing
