"""Plans that are right when asked once and wrong when asked again in another way, each at a model length of its own."""

import dataclasses
import itertools

BY_NAME, REFUSED_BY_NAME, COUNTING, REMEMBERING, BY_HASH, BY_ORDER, REFUSED_BY_ORDER = range(1001, 1008)
BLOCK_BY_RANKS, TABLE_BY_RANKS, FEWER_IN_MORE, REFUSED_IN_MORE, FEWER_BY_RANKS = range(1011, 1016)
SPAN_BY_RANKS = 48
"""Tokens per block: the function that it is of knows no model length."""

SHIFTED, FAILING = 96, 80
"""Head sizes whose views are wrong."""


def apply(planner):
    spoil_groups(planner)
    spoil_pools(planner)
    spoil_spans(planner)
    spoil_views()


def spoil_groups(planner):
    original = planner.get_kv_cache_groups
    numbers = itertools.count()

    def grouped(config, specs):
        length, names = config.model_config.max_model_len, list(specs)
        if length == REFUSED_BY_NAME and names[0] > names[-1]:
            raise ValueError("the first layer's name comes last")
        if length == REFUSED_BY_ORDER and names[0] > names[1]:
            raise ValueError("two layers are in the wrong order")
        groups = original(config, specs)
        if length == BY_NAME:
            groups.sort(key=lambda group: group.layer_names[0])
        if length == COUNTING and next(numbers) % 2:
            groups.reverse()
        if length == REMEMBERING:
            held = config.compilation_config  # a part of the configuration that planning only reads
            if hasattr(held, "planned"):
                groups.reverse()
            object.__setattr__(held, "planned", True)
        if length == BY_HASH:
            by_name = {group.layer_names[0]: group for group in groups}
            groups = [by_name[name] for name in set(by_name)]
        if length == BY_ORDER and names[0] > names[1]:
            enlarge(groups[0])
        if length == BLOCK_BY_RANKS:
            ranks = config.parallel_config.decode_context_parallel_size
            for group in groups:
                if not group.kv_cache_spec.dcp_sharded and ranks > 4:
                    enlarge(group)
        return groups

    planner.get_kv_cache_groups = grouped


def enlarge(group):
    spec = group.kv_cache_spec
    group.kv_cache_spec = dataclasses.replace(spec, block_size=2 * spec.block_size)


def spoil_pools(planner):
    original = planner.get_kv_cache_configs

    def placed(config, specs, memory):
        length = config.model_config.max_model_len
        if max(memory) > 2**30 + 2**29:
            if length == REFUSED_IN_MORE:
                raise ValueError("so much memory cannot be used")
            if length == FEWER_IN_MORE:
                memory = [one // 4 for one in memory]
        if length == FEWER_BY_RANKS:
            memory = [one // config.parallel_config.decode_context_parallel_size**2 for one in memory]
        return original(config, specs, memory)

    planner.get_kv_cache_configs = placed


def spoil_spans(planner):
    original = planner.resolve_dcp_kv_block_size

    def spanned(spec, ranks):
        return spec.block_size * ranks if spec.block_size == SPAN_BY_RANKS else original(spec, ranks)

    planner.resolve_dcp_kv_block_size = spanned
    held = planner.FullAttentionSpec.max_num_blocks_per_req

    def width(spec, config, length):
        return held(
            spec,
            config,
            length // config.parallel_config.decode_context_parallel_size
            if length == TABLE_BY_RANKS and not spec.dcp_sharded
            else length,
        )

    planner.FullAttentionSpec.max_num_blocks_per_req = width


def spoil_views():
    from vllm.v1 import kv_cache_interface

    original = kv_cache_interface.create_kv_cache_views

    def made(raw, spec, *rest):
        if getattr(spec, "head_size", 0) == FAILING:
            raise RuntimeError("no view of this head size")
        views = original(raw, spec, *rest)
        if getattr(spec, "head_size", 0) == SHIFTED:
            views = [view.as_strided(view.shape, view.stride(), view.storage_offset() + 1) for view in views]
        return views

    kv_cache_interface.create_kv_cache_views = made
