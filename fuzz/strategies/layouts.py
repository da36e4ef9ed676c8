"""KV layouts: which one vLLM's guard would accept for a set of specs.

The rules are those of VLLM.md 4: pages of several shapes need a layout that keeps a block's bytes together, and
two replication modes on unequal pages need the block outermost.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuzz.strategies.source import Source
from oracles.case import AttentionSpec, CircularBufferSpec, Layout, Spec
from oracles.geometry import page_bytes, states_per_block

BLOCK_COMPACT: tuple[Layout, ...] = ("LBNHC", "LBHNC", "BLHNC", "BLNHC")
BLOCK_OUTERMOST: tuple[Layout, ...] = ("BLHNC", "BLNHC", "BHLNC")
LAYOUTS: tuple[Layout, ...] = (*BLOCK_COMPACT, "LHBNC", "BHLNC")
FORCED: tuple[Layout, ...] = (*BLOCK_COMPACT, "LBNHC", "LBHNC", "LHBNC", "BHLNC")
"""Layouts drawn against the guard. Mostly those with a layer's blocks together: pages that can be raised to one size
are then planned, while a layout that keeps a block's heads apart is refused.
"""


def resolvable_layouts(specs: Iterable[Spec]) -> tuple[Layout, ...]:
    """The layouts that ``resolve_kv_cache_layout`` accepts when a backend offers them alone."""
    shapes, modes = set(), set()
    for spec in specs:
        if isinstance(spec, AttentionSpec):
            heads = spec.num_kv_heads if spec.num_head_slots is None else spec.num_head_slots
            shapes.add((heads, states_per_block(spec), page_bytes(spec)))
            if not isinstance(spec, CircularBufferSpec):
                modes.add(spec.replicated)
        else:
            shapes.add((1, 1, page_bytes(spec)))
    fit = LAYOUTS
    if len(shapes) > 1:
        fit = tuple(layout for layout in fit if layout in BLOCK_COMPACT)
    if len(modes) > 1 and len({page for _, _, page in shapes}) > 1:
        fit = tuple(layout for layout in fit if layout in BLOCK_OUTERMOST)
    return fit


def draw_layout(source: Source, specs: Iterable[Spec]) -> tuple[Layout, bool]:
    """(a layout, whether it is forced on the planner against its guard)."""
    fit = resolvable_layouts(specs)
    if source.chance(36):
        layout = source.choice(FORCED)
        # A forced layout that the guard would accept is a resolved one by another name.
        return layout, layout not in fit
    return source.choice(fit), False
