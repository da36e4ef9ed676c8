"""A rough plan of a case: good enough to aim at boundaries and to name the branch expected, never to judge.

It follows the rules of VLLM.md 3 to 5 for the packed generation on *distinct* specs, in some microseconds; the
judge's own reference is ``oracles.reference``. Where both differ, only the aim is off.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, structs

from fuzz.strategies.layouts import BLOCK_OUTERMOST
from oracles.case import (
    AttentionSpec,
    Case,
    ChunkedLocalSpec,
    CircularBufferSpec,
    CrossSpec,
    FullSpec,
    HiddenStateSpec,
    MambaSpec,
    MlaSpec,
    Settings,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
    mode_of,
)
from oracles.geometry import DTYPE_BYTES, ceil_div, page_bytes, round_up, stride_alignment, token_slots, with_block_size

Branch = Literal[
    "no_layers", "one_spec", "one_type", "packed", "packed_repeats", "equal_pages", "raised_pages",
    "full_fallback", "not_divisible", "converted", "not_convertible",
]  # fmt: skip

ATTENTION_FIELDS = AttentionSpec.__struct_fields__


class Outline(Struct, frozen=True):
    """``groups`` holds layer positions; ``pages`` the bytes of each layer's page; ``request_blocks`` the blocks
    that one request of the model length takes; ``block_bytes`` the pool's bytes per block, stage by stage.
    """

    branch: Branch
    groups: tuple[tuple[int, ...], ...]
    pages: tuple[int, ...]
    request_blocks: int
    block_bytes: tuple[int, ...]


def outline(case: Case) -> Outline:
    """The rough plan of ``case``."""
    settings = case.settings
    table: list[Spec] = list(case.specs)
    order = [layer.spec for layer in case.layers]
    converted = True
    if not settings.hybrid_manager:
        table, converted = _convert(table)
    branch, groups = _group(table, order, settings, converted)
    if branch in ("one_spec", "one_type") and tuple(table) != case.specs:
        branch = "converted"
    pages = [page_bytes(spec) for spec in table]
    if branch in ("equal_pages", "raised_pages"):
        common = max((pages[at] for at in order if not isinstance(table[at], HiddenStateSpec)), default=0)
        table = _beside_hidden_states([_raised(spec, common) for spec in table], common)
        pages = [page_bytes(spec) for spec in table]
    outermost = settings.layout in BLOCK_OUTERMOST
    strides = [max(1, stride_alignment(spec)) for spec in table]
    widths = pages if outermost else [round_up(p, s) for p, s in zip(pages, strides, strict=True)]
    block_bytes = []
    stages = settings.stages
    for stage in range(stages):
        if stages == 1:
            sums, here = [sum([widths[order[at]] for at in group]) for group in groups], set(strides)
        else:
            on = [layer.stage == stage for layer in case.layers]
            sums = [sum([widths[order[at]] for at in group if on[at]]) for group in groups]
            here = {strides[layer.spec] for layer in case.layers if layer.stage == stage}
        widest = max(sums, default=0)
        block_bytes.append(round_up(widest, math.lcm(*here)) if outermost else widest)
    blocks = sum(max(request_blocks(table[at], settings) for at in {order[i] for i in group}) for group in groups)
    return Outline(branch, tuple(map(tuple, groups)), tuple(pages[at] for at in order), blocks, tuple(block_bytes))


def request_blocks(spec: Spec, settings: Settings) -> int:
    """Blocks that one request of the model length takes in a group of ``spec``."""
    length, in_flight = settings.model_len, settings.batches_in_flight * settings.batched_tokens
    if isinstance(spec, MambaSpec):
        extra = spec.num_prefill_checkpoint_blocks + 1 if settings.mamba_mode == "align" else 0
        return 1 + spec.num_speculative_blocks + extra
    if isinstance(spec, CircularBufferSpec):
        return 1
    if isinstance(spec, CrossSpec):
        return ceil_div(settings.encoder_tokens, spec.block_size)
    if isinstance(spec, ChunkedLocalSpec):
        return ceil_div(min(spec.attention_chunk_size + in_flight, length), spec.block_size)
    if isinstance(spec, SlidingWindowSpec):
        visible = spec.sliding_window - 1 + retained_tokens(settings)
        return ceil_div(min(visible + in_flight, length), spec.block_size) + 1
    if isinstance(spec, FullSpec):
        return ceil_div(length if spec.replicated else ceil_div(length, settings.dcp), spec.block_size)
    return 0


def retained_tokens(settings: Settings) -> int:
    """Tokens below the window that chained MTP modules may ask for again."""
    wanted = settings.speculative
    chained = wanted is not None and wanted.method == "mtp" and min(wanted.modules, wanted.tokens) > 1
    return wanted.tokens - 1 if wanted is not None and chained else 0


def _group(
    table: Sequence[Spec], order: Sequence[int], settings: Settings, converted: bool
) -> tuple[Branch, list[list[int]]]:
    """(the branch that decides, the groups as layer positions)."""
    everything = [list(range(len(order)))] if order else []
    if not converted or any(page_bytes(table[at]) == 0 for at in order):
        # A converted block can be smaller than what one state stands for: it has no page.
        return "not_convertible", everything
    if not order:
        return "no_layers", []
    if merges(table):
        return "one_spec", everything
    if one_type(table):
        return "one_type", everything
    plain = [at for at in range(len(order)) if not isinstance(table[order[at]], HiddenStateSpec)]
    hidden = [[at] for at in range(len(order)) if isinstance(table[order[at]], HiddenStateSpec)]
    used = dict.fromkeys(order[at] for at in plain)
    pages = {at: page_bytes(table[at]) for at in used}
    if settings.layout in BLOCK_OUTERMOST and len(set(pages.values())) > 1:
        groups, repeats = _packed(table, order, plain, pages)
        return ("packed_repeats" if repeats else "packed"), groups + hidden
    largest = max(pages.values(), default=0)
    for at, page in pages.items():
        if largest % page and isinstance(table[at], MlaSpec):
            return ("full_fallback" if _falls_back(table) else "not_divisible"), everything
    branch: Branch = "equal_pages" if len(set(pages.values())) <= 1 else "raised_pages"
    return branch, _equal_counts(table, order, plain) + hidden


def merges(specs: Sequence[Spec]) -> bool:
    """Whether specs that are all different merge into one."""
    first = specs[0]
    if len(specs) == 1:
        return True
    if isinstance(first, SlidingWindowMlaSpec | MlaSpec):
        loose = {"non_causal_multi_token_decode", "non_causal", "sliding_window", "attention_chunk_size"}
        names = [n for n in first.__struct_fields__ if n not in loose or isinstance(first, SlidingWindowMlaSpec)]
        return all(type(s) is type(first) and all(getattr(s, n) == getattr(first, n) for n in names) for s in specs)
    if not isinstance(first, FullSpec):
        return False
    if any(isinstance(s, MlaSpec) or not isinstance(s, FullSpec) for s in specs):
        return False
    if type(first).__name__ == "RSwaSpec" and any(type(s) is not type(first) for s in specs):
        return False
    if any(getattr(s, n) != getattr(first, n) for s in specs for n in ATTENTION_FIELDS):
        return False
    windows = {s.sliding_window for s in specs if isinstance(s, FullSpec)} - {None}
    chunks = {s.attention_chunk_size for s in specs if isinstance(s, FullSpec)} - {None}
    return len(windows) + len(chunks) <= 1


def one_type(specs: Sequence[Spec]) -> bool:
    """Whether layers of these specs need the same token slots, so that one wrapper holds them all."""
    first = specs[0]
    slots = token_slots(first)
    if isinstance(first, MambaSpec):
        slots = (*slots, page_bytes(first), first.prefill_checkpoint_alignment)
    for spec in specs[1:]:
        other = token_slots(spec)
        if isinstance(spec, MambaSpec):
            other = (*other, page_bytes(spec), spec.prefill_checkpoint_alignment)
        if spec.block_size != first.block_size or mode_of(spec) != mode_of(first) or other != slots:
            return False
    return True


def _packed(
    table: Sequence[Spec], order: Sequence[int], plain: Sequence[int], pages: dict[int, int]
) -> tuple[list[list[int]], bool]:
    """Buckets of one type, split by pattern repeats and, for states, down to the block that others need."""
    buckets: list[list[int]] = []
    for at in pages:
        home = next((b for b in buckets if one_type([table[b[0]], table[at]])), None)
        if home is None:
            buckets.append([at])
        else:
            home.append(at)
    shaped: list[tuple[list[int], dict[int, list[int]], bool]] = []
    for bucket in buckets:
        members = set(bucket)
        layers = [at for at in plain if order[at] in members]
        by_page: dict[int, list[int]] = defaultdict(list)
        for at in layers:
            by_page[pages[order[at]]].append(at)
        shaped.append((layers, by_page, len({len(v) for v in by_page.values()}) == 1))
    floor = max((max(map(len, p.values())) for _, p, even in shaped if even and len(p) > 1), default=0)
    repeats = _repeats([max(map(len, p.values())) for _, p, even in shaped if even], floor) if floor else 0

    def is_state(layers: list[int]) -> bool:
        spec = table[order[layers[0]]]
        return isinstance(spec, MambaSpec | CircularBufferSpec) or (not repeats and isinstance(spec, SlidingWindowSpec))

    def split(by_page: dict[int, list[int]], even: bool) -> int:
        return ceil_div(max(map(len, by_page.values())), repeats) if even and repeats else 1

    anchor = max(
        sum(ceil_div(len(v), len(layers) if is_state(layers) else split(p, even)) * page for page, v in p.items())
        for layers, p, even in shaped
    )
    groups: list[list[int]] = []
    for layers, by_page, even in shaped:
        count = split(by_page, even)
        if is_state(layers):
            count = max(count, ceil_div(len(layers), max(anchor // pages[order[layers[0]]], 1)))
        if count == 1:
            groups.append(layers)
        else:
            rows = list(zip(*by_page.values(), strict=False))
            groups += [[at for row in rows[i::count] for at in row] for i in range(count) if rows[i::count]]
    return groups, bool(repeats)


def _repeats(counts: Sequence[int], floor: int) -> int:
    """The layers per group from ``floor`` upward with the least padding, the larger on ties."""
    return min(range(floor, max(counts) + 1), key=lambda width: (sum(-n % width for n in counts), -width))


def _equal_counts(table: Sequence[Spec], order: Sequence[int], plain: Sequence[int]) -> list[list[int]]:
    """Collections of layers that merge, dealt round-robin into groups of one width."""
    collections: list[tuple[list[Spec], list[int]]] = []
    by_spec: dict[int, list[int]] = defaultdict(list)
    for at in plain:
        by_spec[order[at]].append(at)
    for at, layers in by_spec.items():
        home = next((c for c in collections if merges([*c[0], table[at]])), None)
        if home is None:
            collections.append(([table[at]], list(layers)))
        else:
            home[0].append(table[at])
            home[1].extend(layers)
    if not collections:
        return []
    counts = [len(layers) for _, layers in collections]
    width = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    return [
        layers[i :: ceil_div(len(layers), width)]
        for _, layers in collections
        for i in range(ceil_div(len(layers), width))
    ]


def _raised(spec: Spec, page: int) -> Spec:
    """``spec`` on a page of ``page`` bytes: more tokens if that divides, else padded."""
    held = page_bytes(spec)
    if held >= page or isinstance(spec, HiddenStateSpec):
        return spec
    if isinstance(spec, MambaSpec) or page % held:
        return structs.replace(spec, page_size_padded=page)
    return with_block_size(spec, spec.block_size * (page // held))


def _beside_hidden_states(table: list[Spec], common: int) -> list[Spec]:
    """Hidden states get the common page and the largest block that fits it; the page grows if one entry does not."""
    entries = {
        at: spec.num_kv_heads * spec.head_size * DTYPE_BYTES[spec.dtype]
        for at, spec in enumerate(table)
        if isinstance(spec, HiddenStateSpec)
    }
    if not entries or not common:
        return table
    scale = ceil_div(max(entries.values()), common)
    page = common * scale
    grown = [spec if at in entries else _scaled(spec, scale) for at, spec in enumerate(table)]
    unit = math.gcd(*(spec.block_size for at, spec in enumerate(grown) if at not in entries))
    for at, entry in entries.items():
        fit = max(page // entry, 1)
        block = next(size for size in range(min(fit, unit), 0, -1) if unit % size == 0)
        grown[at] = structs.replace(table[at], block_size=block, page_size_padded=page)
    return grown


def _scaled(spec: Spec, scale: int) -> Spec:
    padded = spec.page_size_padded
    return structs.replace(
        spec, block_size=spec.block_size * scale, page_size_padded=None if padded is None else padded * scale
    )


def _falls_back(table: Sequence[Spec]) -> bool:
    """Whether windows beside latent attention can be allocated like full attention instead."""
    if any(isinstance(s, HiddenStateSpec | SlidingWindowMlaSpec | ChunkedLocalSpec) for s in table):
        return False
    return any(isinstance(s, SlidingWindowSpec) for s in table) and _convert(table)[1]


def _convert(table: Sequence[Spec]) -> tuple[list[Spec], bool]:
    """(specs with local attention allocated like full, whether each mode's part became one type)."""
    result = list(table)
    for replicated in (False, True):
        part = [at for at, spec in enumerate(table) if (mode_of(spec) == "replicated") is replicated]
        specs = [table[at] for at in part]
        if not part or merges(specs) or one_type(specs):
            continue
        blocks = {spec.block_size for spec in specs if isinstance(spec, FullSpec)}
        if blocks:
            shared = blocks.pop() if len(blocks) == 1 else None
            for at in part:
                result[at] = _as_full(table[at], shared or table[at].block_size)
        if not one_type([result[at] for at in part]):
            return result, False
    return result, True


def _as_full(spec: Spec, block: int) -> Spec:
    if not isinstance(spec, SlidingWindowSpec | ChunkedLocalSpec):
        return spec
    cls = MlaSpec if isinstance(spec, SlidingWindowMlaSpec) else FullSpec
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__ if name in cls.__struct_fields__}
    padded = spec.page_size_padded
    if padded is not None:
        bare = page_bytes(structs.replace(spec, page_size_padded=None))
        fields["page_size_padded"] = max(padded, bare * block // spec.block_size)
    return cls(**{**fields, "block_size": block})
