"""From a case to the plan the rules ask for, stage by stage.

What comes back is an outcome in the planner's own vocabulary: ``Planned``, or ``Refused`` at a stage by a type of
error. A stage that no rule speaks of is None in the plan: nothing is asked of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from oracles.capacity import (
    UnitError,
    caches_prefixes,
    hash_block,
    largest_length,
    request_blocks,
    scheduler_block,
    splits_window,
    table_width,
    total_blocks,
)
from oracles.case import (
    AttentionSpec,
    Case,
    CircularBufferSpec,
    EncoderOnlySpec,
    HiddenStateSpec,
    MlaSpec,
    MultipleOf,
    Settings,
    SlidingWindowSpec,
    Spec,
    is_mixed,
    kind_of,
    mode_of,
)
from oracles.geometry import is_prefix_cacheable, is_split_by_dcp, page_bytes, span_tokens, states_per_block
from oracles.law import Contract
from oracles.placement import (
    BLOCK_COMPACT,
    BLOCK_OUTERMOST,
    GroupSpecs,
    LayoutError,
    bytes_per_block,
    check_layout,
    expected_records,
    heads_of,
)
from oracles.plan import Capacity, Group, Outcome, Placement, Plan, Planned, Record, Refusal, Refused, Sizes, Stage
from oracles.reference.grouping import RefusedError, UnruledError, group_layers
from oracles.reference.packing import LayerMap, Made
from oracles.reference.rules import RuleSet
from oracles.reference.specs import is_uniform, page, settle
from oracles.reference.tuples import block_bytes, tensors


class Unruled(Struct, frozen=True):
    """No rule covers the case: nothing can be said, and ``reason`` is counted."""

    reason: str


def expected_plan(case: Case, rules: RuleSet, contract: Contract) -> Outcome | Unruled:
    """What a correct planner of this version answers to ``case`` under ``contract``."""
    settings = case.settings
    unchained = structs.replace(case, settings=structs.replace(settings, speculative=None))
    layers = layer_map(case if rules.retains_chained_tokens else unchained)
    if rules.aligns_strides == "pool" and any(isinstance(s.block_stride_alignment, MultipleOf) for s in case.specs):
        return Unruled("0.31 knows stride alignments in bytes only")
    if rules.sizes_quantised_states and any(_is_sized_by_the_tree(spec) for spec in case.specs):
        return Unruled("to 0.27 a tree works out the bytes of quantised states by itself")
    if any(isinstance(spec, EncoderOnlySpec) for spec in case.specs):
        return Unruled("encoder-only layers are registered by no planner")
    has_layouts = rules.generation == "packed"
    if has_layouts and settings.layout_origin == "resolved" and not _guard_admits(layers, settings, rules):
        return _refused("input", "ValueError", "the layout cannot hold these layers", Plan())
    try:
        groups = grouped(layers, case, rules, contract)
    except RefusedError as error:
        return _refused("group", error.type_name, str(error), Plan())
    except UnruledError as error:
        return Unruled(str(error))
    drafts = draft_marks(groups, layers, case, rules, contract)
    table: dict[Spec, int] = {}
    said = tuple(_as_group(group, mark, table, settings.dcp) for group, mark in zip(groups, drafts, strict=True))
    plan = Plan(specs=tuple(table), groups=said)
    try:
        length, placed = placements(groups, drafts, case, rules)
    except (LayoutError, RefusedError) as error:
        return _refused("place", "ValueError", str(error), plan)
    plan = structs.replace(plan, placement=placed)
    if not groups:
        return Planned(plan=plan)
    return _with_sizes(plan, groups, case, rules, length, placed[0].num_blocks)


def _refused(stage: Stage, type_name: str, cause: str, plan: Plan) -> Refused:
    return Refused(refusals=(Refusal(stage=stage, type=type_name, message=cause),), plan=plan)


# Before grouping: the map of the whole model, and the guard on its layout.


def _is_sized_by_the_tree(spec: Spec) -> bool:
    """Scales of a token and head, and the packed latent format, are part of the page where they are not stated."""
    scaled = isinstance(spec, AttentionSpec) and "PER_TOKEN_HEAD" in spec.kv_quant_mode
    return scaled or getattr(spec, "cache_dtype_str", None) == "fp8_ds_mla"


def layer_map(case: Case) -> LayerMap:
    """Every layer's spec in the engine's order: worker by worker.

    A chain of several MTP modules reads up to its number of tokens further ahead, which a window must retain.
    """
    asked = case.settings.speculative
    chained = asked is not None and asked.method == "mtp" and min(asked.modules, asked.tokens) > 1
    retained = asked.tokens - 1 if chained and asked is not None else 0
    table = [
        settle(structs.replace(s, extra_retained_tokens=retained) if isinstance(s, SlidingWindowSpec) else s)
        for s in case.specs
    ]
    stages = dict.fromkeys(worker.stage for worker in case.settings.workers)
    return {layer.name: table[layer.spec] for stage in stages for layer in case.layers if layer.stage == stage}


def _guard_admits(layers: LayerMap, settings: Settings, rules: RuleSet) -> bool:
    """Whether the engine's own choice of layout could have been this one.

    It looks at the layers as the backends state them, before any grouping.
    """
    specs = set(layers.values())
    shapes = {
        (heads_of(s), states_per_block(s) if isinstance(s, AttentionSpec) else 1, page(s)) for s in specs
    }  # fmt: skip
    if len(shapes) > 1 and settings.layout not in BLOCK_COMPACT:
        return False
    if not rules.layout_guards_modes or settings.layout in BLOCK_OUTERMOST:
        return True
    modes = {
        mode_of(s) for s in specs
        if isinstance(s, AttentionSpec) and (rules.guard_counts_rings or not isinstance(s, CircularBufferSpec))
    }  # fmt: skip
    return len(modes) < 2 or len({page(s) for s in specs}) < 2


# Stage 1: groups.


def grouped(layers: LayerMap, case: Case, rules: RuleSet, contract: Contract) -> list[Made]:
    """The groups under a contract: ``isolate`` plans replicated attention apart, after all else."""
    if contract == "native" or not is_mixed(case):
        return group_layers(layers, case.settings, rules)
    replicated = {name: spec for name, spec in layers.items() if mode_of(spec) == "replicated"}
    others = {name: spec for name, spec in layers.items() if name not in replicated}
    return group_layers(others, case.settings, rules) + group_layers(replicated, case.settings, rules)


def draft_marks(groups: Sequence[Made], layers: LayerMap, case: Case, rules: RuleSet, contract: Contract) -> list[bool]:
    """Which groups hold draft layers, judged over the whole map; see ``RuleSet.draft_marks``."""
    asked = case.settings.speculative
    if asked is None or asked.method not in rules.dropping_methods:
        return [False] * len(groups)
    if rules.draft_marks == "layers":
        drafts = {layer.name for layer in case.layers if layer.draft}
        return [not drafts.isdisjoint(group.layers) for group in groups]
    if rules.generation == "tuples":
        # Only the path of latent tuples looks for drafts, and only in DeepSeek-V4: its last layer is one.
        found = any(getattr(spec, "model_version", None) == "deepseek_v4" for spec in layers.values())
        last = next(reversed(layers), "")
        return [found and len(groups) > 1 and group.spec is None and last in group.layers for group in groups]
    told_apart = contract == "isolate" and is_mixed(case)
    whole = len(groups) == 1 and (not case.settings.hybrid_manager or is_uniform(layers.values(), rules))
    if not told_apart and (whole or (len(groups) == 1 and groups[0].spec is None)):
        return [False] * len(groups)
    # Packing sets hidden-state layers aside before it looks for drafts.
    packs = not told_apart and any(group.spec is None for group in groups)
    candidates = [not (packs and isinstance(group.spec, HiddenStateSpec)) for group in groups]
    names = {name for group, asked_of in zip(groups, candidates, strict=True) if asked_of for name in group.layers}
    last = next((name for name in reversed(layers) if name in names), "")
    trails = _last_layer_is_a_draft(asked.method, case.settings.model_type, rules, packs)
    return [
        asked_of and ((trails and last in group.layers) or any(_decodes_drafts(spec) for spec in group.specs))
        for group, asked_of in zip(groups, candidates, strict=True)
    ]


def _last_layer_is_a_draft(method: str, model_type: str, rules: RuleSet, packs: bool) -> bool:
    """Whether the version takes the last layer for a draft's: MTP modules are appended to the model."""
    appended = model_type in ("deepseek_v4", "deepseek_v41")
    if rules.trailing_draft == "mtp":
        return appended or method == "mtp"
    return packs and appended


def _decodes_drafts(spec: Spec) -> bool:
    return isinstance(spec, MlaSpec) and spec.non_causal_multi_token_decode


def _as_group(group: Made, draft: bool, table: dict[Spec, int], dcp: int) -> Group:
    first = group.specs[0]
    indices = tuple(table.setdefault(spec, len(table)) for spec in group.specs)
    whole = group.spec is not None
    return Group(
        layers=group.layers,
        block_size=first.block_size,
        page_bytes=page(first) if whole else sum(page(spec) for spec in group.specs),
        span_tokens=span_tokens(first, dcp),
        kind="+".join(sorted({kind_of(spec) for spec in group.specs})),
        sharded=is_split_by_dcp(first),
        draft=draft,
        spec=indices[0] if whole else None,
        members=() if whole else indices,
    )


# Stage 2: placement, which is where the memory is judged.


def placements(
    groups: Sequence[Made], drafts: Sequence[bool], case: Case, rules: RuleSet
) -> tuple[int, tuple[Placement, ...]]:
    """(the model length served, each worker's pool). Raises RefusedError and LayoutError."""
    settings = case.settings
    stages = {layer.name: layer.stage for layer in case.layers}
    if any(splits_window(spec, settings.dcp) for group in groups for spec in group.specs):
        raise RefusedError("ValueError", "a sliding window cannot be split over the ranks of DCP")
    local = [
        [[(n, s) for n, s in zip(g.layers, g.specs, strict=True) if stages[n] == worker.stage] for g in groups]
        for worker in settings.workers
    ]
    pools: list[int] = []
    for worker, mine in zip(settings.workers, local, strict=True):
        if not any(mine):
            continue  # nothing lies here: this worker follows the others
        if any(page_bytes(spec) == 0 for part in mine for _, spec in part):
            # Converted to a block that is smaller than what one state stands for.
            raise RefusedError("ValueError", "a block that holds no state has no page")
        pools.append(settings.block_override or worker.memory // _block_bytes(mine, groups, settings, rules))
    if not pools:
        return settings.model_len, tuple(Placement(num_blocks=1, records=(), group_layers=()) for _ in settings.workers)
    length = _length_served(groups, settings, rules, min(pools) - rules.counts_null_block)
    return length, tuple(
        Placement(
            num_blocks=min(pools),
            records=_records(mine, groups, min(pools), settings, rules) if any(mine) else (),
            group_layers=tuple(tuple(name for name, _ in part) for part in mine),
            group_drafts=tuple(drafts),
        )
        for mine in local
    )


def _block_bytes(mine: Sequence[GroupSpecs], groups: Sequence[Made], settings: Settings, rules: RuleSet) -> int:
    """Bytes per block on one worker. Raises LayoutError."""
    if rules.generation == "tuples":
        return block_bytes(mine, rules, wrapped=groups[0].spec is None)
    check_layout(settings.layout, mine, rules)
    return bytes_per_block(settings.layout, mine, rules)


def _records(
    mine: Sequence[GroupSpecs], groups: Sequence[Made], num_blocks: int, settings: Settings, rules: RuleSet
) -> tuple[Record, ...]:
    """The records of one worker. Raises LayoutError."""
    if rules.generation == "tuples":
        return tuple(tensors(mine, num_blocks, rules, wrapped=groups[0].spec is None))
    return expected_records(settings.layout, mine, num_blocks, rules)


def _length_served(groups: Sequence[Made], settings: Settings, rules: RuleSet, usable: int) -> int:
    """The model length, or the longest that fits when that is asked for. Raises RefusedError."""
    specs = [group.specs for group in groups]
    keeps = rules.mode_all_keeps_states
    if usable < 1:
        raise RefusedError("ValueError", "no memory for a block")
    length = settings.model_len
    if settings.auto_fit:
        length = largest_length(specs, settings, usable, keep_all_states=keeps)
        if length < 1:
            raise RefusedError("ValueError", "not even one token fits the memory")
    if total_blocks(specs, settings, length, keep_all_states=keeps) > usable:
        raise RefusedError("ValueError", "one request of the model length does not fit the memory")
    return length


# Stages 3 and 4: sizes and capacity.


def _with_sizes(
    plan: Plan, groups: Sequence[Made], case: Case, rules: RuleSet, length: int, num_blocks: int
) -> Outcome:
    settings, keeps = case.settings, rules.mode_all_keeps_states
    here = {layer.name for layer in case.layers if layer.stage == settings.workers[0].stage}
    # The scheduler knows a group by its first layer on the first worker.
    members = [[s for n, s in zip(g.layers, g.specs, strict=True) if n in here] or list(g.specs) for g in groups]
    firsts = [one[0] for one in members]
    blocks = tuple(request_blocks(s, settings, length, keep_all_states=keeps) for s in firsts)
    if sum(blocks):
        concurrency = num_blocks / sum(blocks)
        plan = structs.replace(plan, capacity=Capacity(
            tokens=int(concurrency * length), concurrency=concurrency, model_len=length, request_blocks=blocks,
        ))  # fmt: skip
    cached = [spec.block_size for spec in firsts if is_prefix_cacheable(spec)]
    caching = caches_prefixes(settings, case.specs)
    try:
        unit = hash_block(firsts, [is_prefix_cacheable(s) for s in firsts], settings, rules, caching=caching)
    except UnitError as error:
        return _refused("size", "ValueError", str(error), plan)
    whole = scheduler_block([span_tokens(spec, settings.dcp) for spec in firsts])
    if len(firsts) == 1 and rules.recurrent_group_spans_dcp and not isinstance(firsts[0], AttentionSpec):
        whole = unit = firsts[0].block_size * settings.dcp
    widths = [tuple(sorted({table_width(s, settings, length, keep_all_states=keeps) for s in one})) for one in members]
    return Planned(plan=structs.replace(plan, sizes=Sizes(
        configured_block=min(cached or [spec.block_size for spec in firsts]),
        scheduler_block=whole,
        hash_block=unit,
        widths=tuple(one[0] if len(one) == 1 else None for one in widths),
        member_widths=tuple(widths),
    )))  # fmt: skip


__all__ = ["Unruled", "draft_marks", "expected_plan", "grouped", "layer_map", "page_bytes", "placements"]
