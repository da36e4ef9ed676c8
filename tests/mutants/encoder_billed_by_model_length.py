"""Cross attention is billed for the model length instead of the encoder's tokens."""

from vllm.v1.kv_cache_interface import CrossAttentionSpec

from fuzz.planners.planting import plant

BASE = "native"
KIND = "loud"
REPORT = "https://github.com/vllm-project/vllm/pull/47035"
SEEN_BY = ("C4", "reference.capacity")


def apply(_planner):
    @plant(CrossAttentionSpec, "max_memory_usage_bytes")
    def _(_original, spec, config):
        return -(-config.model_config.max_model_len // spec.block_size) * spec.page_size_bytes
