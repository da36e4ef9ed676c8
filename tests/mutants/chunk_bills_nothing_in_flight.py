"""Chunked attention is billed for its chunk without the tokens in flight."""

from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = ""
SEEN_BY = ("C1", "C4", "reference.capacity")


def apply(_planner):
    @plant(ChunkedLocalAttentionSpec, "max_admission_blocks_per_request")
    def _(original, spec, max_in_flight_tokens, max_model_len):
        return original(spec, 0 * max_in_flight_tokens, max_model_len)
