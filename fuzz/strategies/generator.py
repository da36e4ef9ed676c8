"""The generator: from a source's decisions to a case that every planner of the vocabulary can be asked.

Order of decisions: the scene, the target's stack, the draft, the place of its layers, pipeline stages, layout,
settings, memory. Each uses what is already decided, so no case is drawn to be thrown away.
"""

from __future__ import annotations

import math
import random
from functools import cache

from msgspec import structs

from fuzz.strategies.draft import NO_DRAFT, Draft, draw_draft
from fuzz.strategies.layouts import BLOCK_OUTERMOST, draw_layout, resolvable_layouts
from fuzz.strategies.memory import draw_workers
from fuzz.strategies.models import draw_model
from fuzz.strategies.outline import outline
from fuzz.strategies.pipeline import draw_stages
from fuzz.strategies.scene import Scene, draw_scene
from fuzz.strategies.source import RandomSource, Source
from fuzz.strategies.target import Stack, draw_stack
from fuzz.strategies.vocabulary import Shape
from oracles.case import Case, Layer, Settings, Spec
from oracles.geometry import is_prefix_cacheable, span_tokens

DEFAULT_MEMORY = Settings().workers[0].memory
"""Bytes."""


def draw_case(generator: random.Random, shape: Shape | None = None) -> Case:
    """A case from ``generator``, the same for the same seed on every machine."""
    return generate(RandomSource(generator), shape or Shape())


def generate(source: Source, shape: Shape) -> Case:
    """A case from ``source``."""
    scene = draw_scene(source, shape)
    # A family says nothing of which layers are replicated; without a draft that is left to ``draw_stack``.
    published = source.chance(28) and (not scene.mixed or scene.lookahead > 0)
    stack = (draw_model(source, scene) if published else None) or draw_stack(source, scene)
    draft = draw_draft(source, scene, stack) if scene.lookahead else NO_DRAFT
    places = arrange(stack, draft)
    table, order, drafts = _table(places)
    stages, stage_count = draw_stages(source, order, drafts)
    layers = tuple(
        Layer(name=name, spec=spec, stage=stage, draft=is_draft)
        for name, spec, stage, is_draft in zip(_names(drafts), order, stages, drafts, strict=True)
    )
    case = Case(specs=table, layers=layers, settings=draw_settings(source, scene, draft, table))
    case = _planned(source, scene, case)
    workers = draw_workers(source, case, stage_count, DEFAULT_MEMORY)
    settings = structs.replace(case.settings, workers=workers)
    if source.chance(20):
        blocks = outline(structs.replace(case, settings=settings)).request_blocks
        # Mostly enough: a pool that serves no request is refused, which shows its size and nothing else.
        override = source.choice((blocks + 1, blocks + 2, 2 * blocks + 1, blocks + 1, 1000, blocks, 1))
        settings = structs.replace(settings, block_override=max(1, override))
    if shape.modes == "any" and source.chance(2):
        # A model without a cache. Decided last, or Hypothesis would take it for the simplest case of all.
        table, layers = (), ()
    return Case(specs=table, layers=layers, settings=settings)


def _planned(source: Source, scene: Scene, case: Case) -> Case:
    """``case``, now and then with a setting changed under which the rough plan expects it to be refused at once: half
    of such cases show what lies behind the refusal, the others that it is made.
    """
    change, layout = source.chance(50), source.choice(BLOCK_OUTERMOST)
    branch = outline(case).branch if change else None
    if branch == "not_convertible" and not case.settings.hybrid_manager:
        return structs.replace(case, settings=structs.replace(case.settings, hybrid_manager=True))
    if branch == "not_divisible" and scene.shape.vocabulary.layouts and layout in resolvable_layouts(case.specs):
        return structs.replace(
            case, settings=structs.replace(case.settings, layout=layout, layout_origin="resolved")
        )  # fmt: skip
    return case


def arrange(stack: Stack, draft: Draft) -> list[tuple[Spec, bool]]:
    """Layers in order, as (spec, whether the draft owns it)."""
    target = [(stack.specs[at], False) for at in stack.order]
    extra = [(spec, True) for spec, count in draft.specs for _ in range(count)]
    if draft.position == "first":
        return extra + target
    if draft.position == "last" or not extra:
        return target + extra
    step = max(1, len(target) // len(extra))
    mixed: list[tuple[Spec, bool]] = []
    for at, one in enumerate(extra):
        mixed += target[at * step : (at + 1) * step]
        mixed.append(one)
    return mixed + target[len(extra) * step :]


def _table(places: list[tuple[Spec, bool]]) -> tuple[tuple[Spec, ...], list[int], list[bool]]:
    """(distinct specs in order of first use, each layer's spec, each layer's draft mark)."""
    # By object first: layers of one kind share theirs, and hashing a spec costs a microsecond.
    by_object: dict[int, int] = {}
    table: dict[Spec, int] = {}
    order = []
    for spec, _ in places:
        at = by_object.get(id(spec))
        if at is None:
            at = by_object[id(spec)] = table.setdefault(spec, len(table))
        order.append(at)
    return tuple(table), order, [is_draft for _, is_draft in places]


@cache
def _name(at: int, is_draft: bool) -> str:
    return f"{'draft' if is_draft else 'model'}.layers.{at}"


def _names(drafts: list[bool]) -> list[str]:
    counts = {True: 0, False: 0}
    names = []
    for is_draft in drafts:
        names.append(_name(counts[is_draft], is_draft))
        counts[is_draft] += 1
    return names


def draw_settings(source: Source, scene: Scene, draft: Draft, table: tuple[Spec, ...]) -> Settings:
    """Everything but the workers and the block override."""
    layout, forced = draw_layout(source, table) if scene.shape.vocabulary.layouts else ("LBNHC", False)
    tp = min(64, scene.dcp * (source.choice((1, 2, 4)) if source.chance(30) else 1))
    unit = draw_match_unit(source, scene, table) if source.chance(22) else None
    return Settings(
        dcp=scene.dcp,
        tp=tp,
        layout=layout,
        layout_origin="forced" if forced else "resolved",
        block_size=scene.block_size,
        model_len=scene.model_len,
        auto_fit=source.chance(20),
        batched_tokens=source.choice((2048, 8192, 1, 512)) if source.chance(40) else 2048,
        batches_in_flight=source.choice((2, 3)) if source.chance(15) else 1,
        encoder_tokens=source.choice((1500, 1, 4096)) if source.chance(20) else 2048,
        mamba_mode=scene.mamba_mode,
        prefix_caching=not source.chance(20),
        hybrid_manager=scene.hybrid_manager,
        speculative=draft.speculative,
        prefix_match_unit=unit,
        model_type="deepseek_v4" if source.chance(5) else "kvfuzz",
    )


def draw_match_unit(source: Source, scene: Scene, table: tuple[Spec, ...]) -> int:
    """A prefix-match unit, in tokens: mostly one that divides the spans, for any other is a refusal."""
    spans = [span_tokens(spec, scene.dcp) for spec in table if is_prefix_cacheable(spec)]
    common = math.gcd(*spans) or scene.block_size
    half, quarter = (common // part if common % part == 0 else common for part in (2, 4))
    return source.choice((common, half, quarter, scene.block_size * scene.dcp, half, 1, 16, 24))
