"""The block table of a replicated layer is as narrow as a sharded one's."""

from dataclasses import replace

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/local-inference-lab/vllm/pull/310"
SEEN_BY = ("S3", "G13", "reference.size")


def apply(planner):
    @plant(planner.AttentionSpec, "max_num_blocks_per_req")
    def _(original, spec, config, max_len):
        return original(replace(spec, dcp_sharded=True), config, max_len)
