"""What a first attempt at this with Hypothesis draws: a list of layers, each independent of the others.

Same vocabulary, valid by construction, and the settings drawn each by itself. No counts of equal layers, no page
relations, no memory at a boundary, no draft or stage that follows a pattern: what those are worth is measured by
comparison with this.
"""

from __future__ import annotations

import random
from typing import Literal

from fuzz.strategies.layouts import LAYOUTS, resolvable_layouts
from fuzz.strategies.scene import BLOCK_SIZES, DCP_SIZES, MODEL_LENGTHS, QUIRKS, WINDOWED, Scene
from fuzz.strategies.source import RandomSource
from fuzz.strategies.specs import draw_spec
from fuzz.strategies.vocabulary import Shape
from oracles.case import Case, Layer, Settings, Spec, Speculative, Worker, build_case

MEAN_LAYERS = 6
"""Layers per case on average, which is what Hypothesis draws for a list of up to 64."""

MEMORIES = (2**30, 2**32, 2**34, 2**36)
"""Bytes."""

MODES: tuple[Literal["none", "align", "all"], ...] = ("none", "align", "all")
METHODS: tuple[Literal["eagle", "mtp", "ngram"] | None, ...] = (None, None, "eagle", "mtp", "ngram")


def draw_naive(generator: random.Random, shape: Shape) -> Case:
    """A case of independent layers from ``generator``, the same for the same seed on every machine."""
    source = RandomSource(generator)
    dcp = source.choice((1, *DCP_SIZES))
    method = source.choice(METHODS)
    scene = Scene(
        shape=shape, policy="some", dcp=dcp, block_size=source.choice(BLOCK_SIZES),
        model_len=source.choice(MODEL_LENGTHS), mamba_mode=source.choice(MODES),
        lookahead=source.choice((1, 3, 7)) if method else 0, hybrid_manager=source.choice((True, False)),
        kinds=tuple(kind for kind in shape.vocabulary.fields if kind != "encoder_only"), quirks=QUIRKS,
    )  # fmt: skip
    specs = [_layer(source, scene)]
    while not source.chance(100 // MEAN_LAYERS):
        specs.append(_layer(source, scene))
    stages = source.choice((1, 2, 4))
    workers = tuple(Worker(memory=source.choice(MEMORIES), stage=stage) for stage in range(stages))
    layout = source.choice(LAYOUTS)
    settings = Settings(
        dcp=dcp, tp=dcp, layout=layout, layout_origin="resolved" if layout in resolvable_layouts(specs) else "forced",
        block_size=scene.block_size, model_len=scene.model_len, auto_fit=source.choice((False, True)),
        batched_tokens=source.choice((2048, 8192, 1, 512)), batches_in_flight=source.choice((1, 2, 3)),
        encoder_tokens=source.choice((2048, 1500)), mamba_mode=scene.mamba_mode,
        prefix_caching=source.choice((True, False)), hybrid_manager=scene.hybrid_manager, workers=workers,
        speculative=Speculative(method=method, tokens=scene.lookahead) if method else None,
        block_override=source.choice((None, 1, 2, 1000)), prefix_match_unit=source.choice((None, 16, 24)),
    )  # fmt: skip
    placed = [
        (Layer(name=f"layers.{at}", spec=0, stage=source.integer(0, stages - 1)), spec) for at, spec in enumerate(specs)
    ]
    return build_case(placed, settings)


def _layer(source: RandomSource, scene: Scene) -> Spec:
    kind = source.choice(scene.kinds)
    must = scene.dcp > 1 and kind in WINDOWED  # the planner documents that it cannot split a window
    replicated = (must or source.choice((False, True))) and scene.shape.vocabulary.replicable(kind)
    return draw_spec(source, scene, kind, replicated=replicated, block_size=source.choice(BLOCK_SIZES))
