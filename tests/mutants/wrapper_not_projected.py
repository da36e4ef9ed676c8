"""A wrapper goes to a pipeline stage with the specs of all stages. (On a stage with none of its layers 0.32 does so
itself; that is a known finding.)
"""

from fuzz.planners.planting import instead, rewrite

BASE = "native"
KIND = "silent"
REPORT = "https://github.com/vllm-project/vllm/issues/54711"
SEEN_BY = ("M1", "reference.place")


def apply(planner):
    rewrite(
        planner,
        "_project_kv_cache_groups_to_worker",
        instead("isinstance(group_spec, UniformTypeKVCacheSpecs)", "False"),
    )
