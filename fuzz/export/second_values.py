"""Values that scripts of second answers compare beside those of ``fuzz.export.values``, under the same rule.

Both answers are read in the script, so that a value need not be written down there: a whole spec may be one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fuzz.export.values import SCHEDULER, SPEC_FIELDS, Reader, member_specs
from fuzz.planners.tree_specs import CLASS_NAMES
from oracles.case import Case, Spec, kind_of, mode_of
from oracles.plan import Group, Outcome, Plan, Planned, Record, Refused

_KINDS = (
    'members = getattr(one.kv_cache_spec, "kv_cache_specs", {0: one.kv_cache_spec})',
    'kinds = "+".join(sorted({type(made).__name__ for made in members.values()}))',
)


def _kind(group: Group) -> str:
    return "+".join(sorted(CLASS_NAMES[one] for one in group.kind.split("+") if one))


def _spans(plan: Plan) -> Any:
    return None if plan.groups is None else [one.span_tokens for one in plan.groups]


_SPANS = (
    'span = getattr(planner, "resolve_dcp_kv_block_size", None) or utils.resolve_dcp_kv_block_size',
    "ranks = vllm_config(LAYERS).parallel_config.decode_context_parallel_size",
)


def _records(plan: Plan) -> Any:
    def facts(record: Record) -> tuple[int, list[str], int, int, int]:
        return record.size, list(record.layers), record.layer_stride, record.block_stride, record.offset

    return None if plan.placement is None else [[facts(one) for one in worker.records] for worker in plan.placement]


def _specs(plan: Plan) -> Any:
    if plan.groups is None:
        return None
    return {name: repr(spec) for one in plan.groups for name, spec in member_specs(plan, one).items()}


def _claim(plan: Plan) -> Any:
    claim = plan.capacity
    return None if claim is None else (claim.tokens, claim.concurrency, claim.model_len, list(claim.request_blocks))


MORE_READERS: tuple[Reader, ...] = (
    Reader(
        name="groups.kind", text="The classes of each group's specs.",
        read=lambda p: None if p.groups is None else [_kind(one) for one in p.groups],
        lines=(
            "found = []",
            "for one in group(LAYERS):",
            *(f"    {line}" for line in _KINDS),
            "    found.append(kinds)",
            "return found",
        ),
    ),
    Reader(
        name="groups.span", text="Tokens of a request that a block of each group covers.", read=_spans,
        lines=(*_SPANS, "return [span(one.kv_cache_spec, ranks) for one in group(LAYERS)]"),
    ),
    Reader(
        name="specs", text="All that each layer's spec says, as its group has it.", read=_specs,
        lines=(
            "found = {}",
            "for one in group(LAYERS):",
            '    members = getattr(one.kv_cache_spec, "kv_cache_specs", None)',
            "    for name in members or one.layer_names:",
            "        found[name] = repr(members[name] if members else one.kv_cache_spec)",
            "return found",
        ),
    ),
    Reader(
        name="pools.records", text="Each worker's records: size, layers, steps of layers and blocks, first byte.",
        read=_records,
        lines=(
            "configs, _ = place(LAYERS)",
            "return [",
            "    [",
            "        (",
            "            one.size,",
            '            list(getattr(one, "layers", None) or one.shared_by),',
            '            getattr(one, "layer_stride", 0),',
            "            one.block_stride,",
            "            one.offset,",
            "        )",
            "        for one in config.kv_cache_tensors",
            "    ]",
            "    for config in configs",
            "]",
        ),
    ),
    Reader(
        name="sizes.widths", text="Columns of each group's block tables at the model length, of each sort of member.",
        read=lambda p: None if p.sizes is None else [list(one) for one in p.sizes.member_widths],
        lines=(
            *SCHEDULER,
            "length, found = config.model_config.max_model_len, []",
            "for one in configs[0].kv_cache_groups:",
            '    members = getattr(one.kv_cache_spec, "kv_cache_specs", {0: one.kv_cache_spec})',
            "    found.append(sorted({made.max_num_blocks_per_req(config, length) for made in members.values()}))",
            "return found",
        ),
    ),
    Reader(
        name="capacity.claim",
        text="Tokens that the pool is said to hold, requests at once, the model length, blocks of one such request.",
        read=_claim,
        lines=(
            *SCHEDULER,
            'tokens, concurrency = function("get_kv_cache_capacity")(config, scheduler)',
            "blocks = [",
            "    -(-made.max_memory_usage_bytes(config) // made.page_size_bytes)",
            "    for made in (one.kv_cache_spec for one in scheduler.kv_cache_groups)",
            "]",
            "return tokens, float(concurrency), config.model_config.max_model_len, blocks",
        ),
    ),
)  # fmt: skip
"""What the laws of second answers compare and ``READERS`` leaves out, because one spelling of it cannot be due."""

ENDING = Reader(
    name="ending", text="How planning ends.",
    read=lambda _: None,
    lines=(
        'stage = "input"',
        "try:",
        "    config, maps = vllm_config(LAYERS), layer_specs(LAYERS)",
        "    resolve_layout(config, maps)",
        '    stage = "group"',
        "    group(LAYERS)",
        '    stage = "place"',
        *(f"    {line}" for line in SCHEDULER[:2]),
        '    stage = "size"',
        *(f"    {line}" for line in SCHEDULER[2:]),
        '    stage = "capacity"',
        '    function("get_kv_cache_capacity")(config, scheduler)',
        '    stage = "size"',
        '    function("resolve_kv_cache_block_sizes")(scheduler, config)',
        "except Unsupported:",
        "    raise",
        "except Exception as error:",
        "    return ended(error, stage)",
        'return "planned"',
    ),
)  # fmt: skip
"""The stage at which planning is refused, and by which error; ``ended`` is in the script."""


def ending_of(outcome: Outcome) -> str:
    """What the lines of ``ENDING`` say of an outcome."""
    if isinstance(outcome, Planned):
        return "planned"
    assert isinstance(outcome, Refused)
    first = outcome.first
    words = "refused" if first.type in ("ValueError", "NotImplementedError", "ValidationError") else "failed"
    return f"{words} at {first.stage} ({first.type})"


def _shapes(plan: Plan) -> Any:
    if plan.groups is None:
        return None
    return sorted((_kind(one), len(one.layers), one.block_size, one.page_bytes) for one in plan.groups)


SHAPES = Reader(
    name="shapes", text="Classes, number of layers, tokens and bytes per block of each group, in order of these.",
    read=_shapes,
    lines=(
        "found = []",
        "for one in group(LAYERS):",
        *(f"    {line}" for line in _KINDS),
        "    made = one.kv_cache_spec",
        "    found.append((kinds, len(one.layer_names), made.block_size, made.page_size_bytes))",
        "return sorted(found)",
    ),
)  # fmt: skip

LENGTH_AND_TOKENS = Reader(
    name="length_and_tokens", text="The model length that is served, and the tokens that the pool is said to hold.",
    read=lambda p: None if p.capacity is None else (p.capacity.model_len, p.capacity.tokens),
    lines=(
        *SCHEDULER,
        'tokens, _ = function("get_kv_cache_capacity")(config, scheduler)',
        "return config.model_config.max_model_len, tokens",
    ),
)  # fmt: skip
"""In the order in which the law weighs them: tokens count where the lengths are the same."""

IS_PLACED = Reader(
    name="is_placed", text="Whether the layers can be placed.",
    read=lambda p: None if p.placement is None else True,
    lines=("place(LAYERS)", "return True"),
)  # fmt: skip


def unsplit_layers(case: Case) -> tuple[str, ...]:
    """The layers of which every DCP rank holds all."""
    return tuple(layer.name for layer in case.layers if mode_of(case.spec_of(layer)) != "sharded")


def _of_unsplit(
    case: Case, name: str, text: str, read: Callable[[Plan, int, Spec], Any], value: Sequence[str],
    before: Sequence[str] = (),
) -> Reader:  # fmt: skip
    """A value of each unsplit layer, by name; ``value`` are lines that read ``value`` of ``own`` or of ``one``."""
    unsplit = frozenset(unsplit_layers(case))

    def values(plan: Plan) -> Any:
        if plan.groups is None:
            return None
        return {
            name: read(plan, at, spec)
            for at, one in enumerate(plan.groups)
            for name, spec in member_specs(plan, one).items()
            if name in unsplit
        }

    return Reader(
        name=f"unsplit.{name}", text=text, read=values,
        lines=(
            *before,
            "found = {}",
            "for one in group(LAYERS):",
            '    members = getattr(one.kv_cache_spec, "kv_cache_specs", None)',
            "    for name in members or one.layer_names:",
            "        if name in UNSPLIT:",
            "            own = members[name] if members else one.kv_cache_spec",
            *(f"            {line}" for line in value),
            "            found[name] = value",
            "return found",
        ),
    )  # fmt: skip


def _field(field: str) -> Callable[[Plan, int, Spec], Any]:
    return lambda _plan, _at, spec: getattr(spec, field, None)


def unsplit_readers(case: Case, path: str) -> Iterator[Reader]:
    """The values of unsplit layers that law G13 tells of at ``path``, the narrowest first."""
    if path == "groups[].span_tokens":
        yield _of_unsplit(
            case, "span", "Tokens of a request that a block of each unsplit layer covers.",
            lambda plan, at, _: plan.groups[at].span_tokens if plan.groups else None,
            ("value = span(one.kv_cache_spec, ranks)",), _SPANS,
        )  # fmt: skip
        return
    if path == "sizes.widths":
        yield _widths_of_unsplit(case)
        return
    yield _of_unsplit(
        case, "kind", "The class of each unsplit layer's spec.", lambda _p, _at, spec: CLASS_NAMES[kind_of(spec)],
        ("value = type(own).__name__",),
    )  # fmt: skip
    for field in ("block_size", *SPEC_FIELDS):
        yield _of_unsplit(
            case, field, f"``{field}`` of each unsplit layer.", _field(field),
            (f'value = getattr(own, "{field}", None)', 'value = getattr(value, "name", value)'),
        )  # fmt: skip
    yield _of_unsplit(
        case, "spec", "All that each unsplit layer's spec says.", lambda _p, _at, spec: repr(spec),
        ("value = repr(own)",),
    )  # fmt: skip


def _widths_of_unsplit(case: Case) -> Reader:
    """Columns of block tables, by layer and model length: tables for another length are not compared."""
    unsplit = frozenset(unsplit_layers(case))

    def values(plan: Plan) -> Any:
        if plan.groups is None or plan.sizes is None:
            return None
        return {
            (name, plan.capacity and plan.capacity.model_len): plan.sizes.widths[at]
            for at, one in enumerate(plan.groups)
            for name in member_specs(plan, one)
            if name in unsplit and at < len(plan.sizes.widths)
        }

    return Reader(
        name="unsplit.widths", text="Columns of each unsplit layer's block table, by the model length.", read=values,
        lines=(
            *SCHEDULER,
            "length, found = config.model_config.max_model_len, {}",
            "for one, here in zip(group(LAYERS), configs[0].kv_cache_groups):",
            "    try:",
            "        width = here.kv_cache_spec.max_num_blocks_per_req(config, length)",
            "    except AssertionError:",
            "        width = None  # members that disagree",
            '    for name in getattr(one.kv_cache_spec, "kv_cache_specs", one.layer_names):',
            "        if name in UNSPLIT:",
            "            found[name, length] = width",
            "return found",
        ),
    )  # fmt: skip
