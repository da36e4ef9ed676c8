"""The block table of recurrent state is divided by dcp."""

from fuzz.planners.planting import plant

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm-ascend/pull/14765"
SEEN_BY = ("S3", "G13", "reference.size")


def apply(planner):
    @plant(planner.MambaSpec, "max_num_blocks_per_req")
    def _(original, spec, config, max_len):
        return original(spec, config, -(-max_len // config.parallel_config.decode_context_parallel_size))
