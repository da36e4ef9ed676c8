"""Reads vLLM's plan objects into the vocabulary. Strict: what is no plan raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fuzz.planners.tree_specs import CLASS_NAMES, Specs
from oracles.case import Spec, kind_of
from oracles.geometry import is_split_by_dcp
from oracles.plan import Capacity, Group, Placement, Record, Sizes


class Table:
    """The distinct specs of one plan."""

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._index: dict[Spec, int] = {}

    def add(self, obj: Any) -> tuple[int, dict[str, str]]:
        """The index of a tree's spec object, and what the vocabulary has no name for."""
        spec, extra = self._specs.read(obj)
        return self._index.setdefault(spec, len(self._index)), extra

    def specs(self) -> tuple[Spec, ...]:
        """The table, in order of first use."""
        return tuple(self._index)


def names(value: Any) -> tuple[str, ...]:
    """A sequence of layer names, checked."""
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"layer names are {value!r:.100}")
    return tuple(value)


def whole(value: Any) -> int:
    """An integer, checked (a float or a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r:.100} where an integer belongs")
    return value


def read_groups(
    groups: Sequence[Any], table: Table, specs: Specs, dcp: int, span_of: Callable[[Any, int], int] | None
) -> tuple[Group, ...]:
    """The groups as the planner made them."""
    return tuple(_read_group(group, table, specs, dcp, span_of) for group in groups)


def _read_group(group: Any, table: Table, specs: Specs, dcp: int, span_of: Callable[[Any, int], int] | None) -> Group:
    spec = group.kv_cache_spec
    layers = names(group.layer_names)
    extra: dict[str, str] = {}
    index: int | None = None
    members: list[int] = []
    member_layers: tuple[str, ...] = ()
    if type(spec) in specs.kinds or not hasattr(spec, "kv_cache_specs"):
        index, extra = table.add(spec)
        one = list(table.specs())[index]
        kind = kind_of(one)
        split = is_split_by_dcp(one)
    else:
        member_layers = names(spec.kv_cache_specs)
        for member in spec.kv_cache_specs.values():
            at, more = table.add(member)
            members.append(at)
            extra.update(more)
        seen = [table.specs()[at] for at in dict.fromkeys(members)]
        kinds = sorted({kind_of(one) for one in seen})
        kind = "+".join(kinds)
        split = bool(seen) and is_split_by_dcp(seen[0])
    if specs.replication_field == "dcp_sharded":
        sharded: bool | None = bool(spec.dcp_sharded)
    elif specs.replication_field == "dcp_replicated":
        sharded = split if not hasattr(spec, "dcp_replicated") else not spec.dcp_replicated
    else:
        sharded = None
    block = whole(spec.block_size)
    span = whole(span_of(spec, dcp)) if span_of is not None else block * (dcp if split else 1)
    return Group(
        layers=layers,
        block_size=block,
        page_bytes=whole(spec.page_size_bytes),
        span_tokens=span,
        kind=kind,
        sharded=sharded,
        draft=bool(group.is_eagle_group),
        spec=index,
        members=tuple(members),
        member_layers=() if member_layers == layers else member_layers,
        extra=extra,
    )


def read_placement(configs: Sequence[Any]) -> tuple[Placement, ...]:
    """Each worker's pool."""
    return tuple(
        Placement(
            num_blocks=whole(config.num_blocks),
            records=tuple(_read_record(tensor) for tensor in config.kv_cache_tensors),
            group_layers=tuple(names(group.layer_names) for group in config.kv_cache_groups),
            group_drafts=tuple(bool(group.is_eagle_group) for group in config.kv_cache_groups),
        )
        for config in configs
    )


def _read_record(tensor: Any) -> Record:
    if hasattr(tensor, "shared_by"):
        return Record(
            size=whole(tensor.size), layers=names(tensor.shared_by), offset=whole(tensor.offset),
            block_stride=whole(tensor.block_stride), aliased=True,
        )  # fmt: skip
    return Record(
        size=whole(tensor.size), layers=names(tensor.layers), layer_stride=whole(tensor.layer_stride),
        block_stride=whole(tensor.block_stride), offset=whole(tensor.offset),
    )  # fmt: skip


def read_capacity(claim: tuple[int, float], scheduler: Any, config: Any) -> Capacity:
    """The capacity claimed at start-up, and the blocks one request of the model length needs per group."""
    tokens, concurrency = claim
    blocks = tuple(
        -(-whole(group.kv_cache_spec.max_memory_usage_bytes(config)) // whole(group.kv_cache_spec.page_size_bytes))
        for group in scheduler.kv_cache_groups
    )
    return Capacity(
        tokens=whole(tokens), concurrency=float(concurrency), model_len=whole(config.model_config.max_model_len),
        request_blocks=blocks,
    )  # fmt: skip


def read_sizes(pair: tuple[int, int], configured: int, configs: Sequence[Any], config: Any) -> Sizes:
    """Scheduler and hash block, and the block-table widths of groups and members."""
    length = config.model_config.max_model_len
    widths: list[int | None] = []
    member_widths = []
    for group in configs[0].kv_cache_groups:
        spec = group.kv_cache_spec
        members = getattr(spec, "kv_cache_specs", None) if type(spec).__name__ not in CLASS_NAMES.values() else None
        distinct = sorted({whole(_width(one, config, length)) for one in (members or {0: spec}).values()})
        member_widths.append(tuple(distinct))
        try:
            widths.append(whole(_width(spec, config, length)))
        except AssertionError:
            widths.append(None)  # a wrapper whose members disagree
    return Sizes(
        configured_block=configured, scheduler_block=whole(pair[0]), hash_block=whole(pair[1]),
        widths=tuple(widths), member_widths=tuple(member_widths),
    )  # fmt: skip


def _width(spec: Any, config: Any, length: int) -> Any:
    return spec.max_num_blocks_per_req(config, length)
