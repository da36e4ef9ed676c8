"""Values of a plan that a reproducer compares: each is read here from a plan, and there by a few lines of script.

The two must agree to the letter, or a reproducer would fail on a good tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from oracles.case import Spec
from oracles.plan import Group, Plan

Read = Callable[[Plan], Any]


class Reader(Struct, frozen=True, kw_only=True):
    """One value: its name, a sentence, how it is read from a plan (None: not there), and the script's lines."""

    name: str
    text: str
    read: Read
    lines: tuple[str, ...]


def _of_groups(name: str, text: str, read: Callable[[Group], Any], code: str) -> Reader:
    def values(plan: Plan) -> Any:
        return None if plan.groups is None else [read(one) for one in plan.groups]

    return Reader(name=f"groups.{name}", text=text, read=values, lines=(f"return [{code} for one in group(LAYERS)]",))


SPEC_FIELDS = (
    "num_kv_heads", "head_size", "page_size_padded", "sliding_window", "attention_chunk_size", "sink_len",
    "num_head_slots", "state_content_bytes", "rswa_window", "extra_retained_tokens", "non_causal",
    "num_speculative_blocks", "max_tp_shards", "kv_quant_mode",
)  # fmt: skip
"""Fields of a layer's spec that have one spelling in every release and whose values can be written down."""


def _of_layers(field: str) -> Reader:
    def values(plan: Plan) -> Any:
        if plan.groups is None:
            return None
        return {
            name: getattr(spec, field, None) for one in plan.groups for name, spec in member_specs(plan, one).items()
        }

    return Reader(
        name=f"specs.{field}",
        text=f"``{field}`` of every layer, as its group has it.",
        read=values,
        lines=(
            "found = {}",
            "for one in group(LAYERS):",
            '    members = getattr(one.kv_cache_spec, "kv_cache_specs", None)',
            "    for name in members or one.layer_names:",
            f'        value = getattr(members[name] if members else one.kv_cache_spec, "{field}", None)',
            '        found[name] = getattr(value, "name", value)',
            "return found",
        ),
    )


def member_specs(plan: Plan, group: Group) -> dict[str, Spec]:
    """Each layer of a group with the spec that the group has for it."""
    if group.spec is not None:
        return dict.fromkeys(group.layers, plan.specs[group.spec])
    names = group.member_layers or group.layers
    return {name: plan.specs[at] for name, at in zip(names, group.members, strict=True)}


def _starts(plan: Plan) -> Any:
    if plan.placement is None:
        return None
    return [
        {
            name: (record.offset + (0 if record.aliased else at * record.layer_stride), record.block_stride)
            for record in worker.records
            for at, name in enumerate(record.layers)
        }
        for worker in plan.placement
    ]


def _capacity(plan: Plan) -> Any:
    return None if plan.capacity is None else (plan.capacity.tokens, round(plan.capacity.concurrency, 6))


def _blocks(plan: Plan) -> Any:
    return None if plan.sizes is None else (plan.sizes.scheduler_block, plan.sizes.hash_block)


SCHEDULER = (
    "configs, config = place(LAYERS)",
    "function = lambda name: getattr(planner, name, None) or getattr(utils, name)  # noqa: E731",
    'scheduler = function("generate_scheduler_kv_cache_config")(configs)',
    "specs = [one.kv_cache_spec for one in scheduler.kv_cache_groups]",
    'cached = [one.block_size for one in specs if getattr(one, "prefix_cacheable", True)]',
    'object.__setattr__(config.cache_config, "block_size", min(cached or [one.block_size for one in specs]))',
)
"""What the engine does between placing and sizing."""

READERS: tuple[Reader, ...] = (
    _of_groups("layers", "The layers of each group.", lambda g: list(g.layers), "list(one.layer_names)"),
    _of_groups("block_size", "Tokens per block of each group.", lambda g: g.block_size, "one.kv_cache_spec.block_size"),
    _of_groups(
        "page_bytes", "Bytes per block of each group.", lambda g: g.page_bytes, "one.kv_cache_spec.page_size_bytes"
    ),
    *map(_of_layers, SPEC_FIELDS),
    _of_groups("draft", "Whether each group is marked as a draft's.", lambda g: g.draft, "bool(one.is_eagle_group)"),
    _of_groups(
        "wrapper", "Whether each group keeps a spec for each layer.",
        lambda g: g.is_wrapper, 'hasattr(one.kv_cache_spec, "kv_cache_specs")',
    ),
    Reader(
        name="pools.blocks", text="Blocks in each worker's pool.",
        read=lambda p: None if p.placement is None else [w.num_blocks for w in p.placement],
        lines=("configs, _ = place(LAYERS)", "return [one.num_blocks for one in configs]"),
    ),
    Reader(
        name="pools.group_layers", text="The layers of each group on each worker.",
        read=lambda p: None if p.placement is None else [[list(g) for g in w.group_layers] for w in p.placement],
        lines=(
            "configs, _ = place(LAYERS)",
            "return [[list(part.layer_names) for part in one.kv_cache_groups] for one in configs]",
        ),
    ),
    Reader(
        name="pools.drafts", text="Whether each group is marked as a draft's, on each worker.",
        read=lambda p: None if p.placement is None else [list(w.group_drafts) for w in p.placement],
        lines=(
            "configs, _ = place(LAYERS)",
            "return [[bool(part.is_eagle_group) for part in one.kv_cache_groups] for one in configs]",
        ),
    ),
    Reader(
        name="pools.starts",
        text="Where block 0 of each layer lies in each pool, and how far block 1 is from it, in bytes.",
        read=_starts,
        lines=(
            "configs, _ = place(LAYERS)",
            "return [",
            "    {",
            '        name: (one.offset + at * getattr(one, "layer_stride", 0), one.block_stride)',
            "        for one in config.kv_cache_tensors",
            '        for at, name in enumerate(getattr(one, "layers", None) or one.shared_by)',
            "    }",
            "    for config in configs",
            "]",
        ),
    ),
    Reader(
        name="sizes", text="Tokens that the scheduler handles at once, and tokens per prefix hash.",
        read=_blocks,
        lines=(*SCHEDULER, 'return tuple(function("resolve_kv_cache_block_sizes")(scheduler, config))'),
    ),
    Reader(
        name="capacity", text="Tokens that the pool is said to hold, and requests of the model length at once.",
        read=_capacity,
        lines=(
            *SCHEDULER,
            'tokens, concurrency = function("get_kv_cache_capacity")(config, scheduler)',
            "return tokens, round(float(concurrency), 6)",
        ),
    ),
)  # fmt: skip
"""In the order in which a reader would look."""


def first_difference(
    expected: Plan, obtained: Plan, readers: Iterable[Reader] = READERS
) -> tuple[Reader, Any, Any] | None:
    """The first value that both plans have and that differs, with both."""
    for reader in readers:
        wanted, got = reader.read(expected), reader.read(obtained)
        if wanted is not None and got is not None and wanted != got:
            return reader, wanted, got
    return None


def deepest(plan: Plan) -> Reader | None:
    """The last value of placement, groups or sizes that a plan has; None for a plan that has none."""
    for name in ("pools.starts", "groups.layers"):
        reader = next(one for one in READERS if one.name == name)
        if reader.read(plan) is not None:
            return reader
    return None
