# Appended to the planner of a copy of vLLM by test_exports.py: mends the faults whose reproducers are run there.
import sys as _sys
from dataclasses import replace as _replace

_unify = unify_kv_cache_spec_page_size  # noqa: F821
_pack = _get_packed_kv_cache_groups  # noqa: F821


def unify_kv_cache_spec_page_size(kv_cache_spec):
    largest = max(one.page_size_bytes for one in kv_cache_spec.values())
    bare = {
        name: one
        if getattr(one, "page_size_padded", None) is None or one.page_size_bytes == largest
        else _replace(one, page_size_padded=None)
        for name, one in kv_cache_spec.items()
    }
    return _unify(bare)


def _get_packed_kv_cache_groups(vllm_config, kv_cache_spec):
    groups = _pack(vllm_config, kv_cache_spec)
    grouped = {name for one in groups or () for name in one.layer_names}
    for name in kv_cache_spec.keys() - grouped if groups else ():
        alone = UniformTypeKVCacheSpecs.from_specs({name: kv_cache_spec[name]})  # noqa: F821
        groups.append(KVCacheGroupSpec([name], alone))  # noqa: F821
    return groups


def _isolate(path, planner):
    scope = {"__name__": "isolate"}
    with open(path) as stream:
        exec(compile(stream.read(), path, "exec"), scope)
    scope["apply"](planner)


_isolate(ISOLATE, _sys.modules[__name__])  # noqa: F821
