"""The catalogue: every case of one or two plain layers that is less than the best, least first.

Passes go downhill from where they are, so that two searches for one fault may end in two valleys. Asking the plainest
cases outright at the end takes both to the same one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import cast

from msgspec import structs

from fuzz.minimise.fields import plainest
from fuzz.minimise.order import RANKED, Key, order_key
from oracles.case import AttentionSpec, Case, Layer, MambaSpec, Settings, Spec, build_case, kind_of
from oracles.geometry import content_bytes

COMMON = ("full", "sliding_window", "mla", "mamba")
"""Kinds that are tried whether or not the best case has them."""


def catalogue(case: Case, below: Key) -> Iterator[Case]:
    """Cases with less than ``below``, least first: one or two layers under the best case's settings or the defaults."""
    kinds = dict.fromkeys((*COMMON, *map(kind_of, case.specs)))
    modes = {bool(getattr(spec, "replicated", False)) for spec in case.specs}
    stock = [spec for kind in kinds for mode in sorted(modes) for spec in variants(kind, mode)]
    drafts = {layer.draft for layer in case.layers}
    held = case.settings
    default = structs.replace(Settings(), speculative=held.speculative, layout_origin=held.layout_origin)
    pairs = dict.fromkeys((default, _one_worker(held), held))
    singles = dict.fromkeys(
        structs.replace(one, layout=layout) for layout in RANKED["layout"] for one in (default, held)
    )
    offered: list[tuple[Key, Case]] = []
    for count, settings in ((1, singles), (2, pairs)):
        if count > below[0]:
            break
        for specs in itertools.product(stock, repeat=count):
            for setting in settings:
                made = _of(specs, setting, drafts)
                key = order_key(made)
                if key < below:
                    offered.append((key, made))
    yield from (made for _, made in sorted(offered, key=lambda row: row[0]))


def _one_worker(settings: Settings) -> Settings:
    return structs.replace(settings, workers=(structs.replace(settings.workers[0], stage=0),))


def _of(specs: tuple[Spec, ...], settings: Settings, drafts: set[bool]) -> Case:
    """Layers on the first and the last stage; the last one is the draft's where the best case has drafts."""
    last = len(specs) - 1
    rows = [
        (
            Layer(
                name=f"{'d' if at == last and True in drafts else 't'}.{0 if True in drafts else at}", spec=0,
                stage=settings.stages - 1 if at == last and last else 0, draft=at == last and True in drafts,
            ),
            spec,
        )
        for at, spec in enumerate(specs)
    ]  # fmt: skip
    modes = {spec.mamba_cache_mode for spec in specs if isinstance(spec, MambaSpec)}
    mode = next(iter(modes), "none") if modes else "none"
    return build_case(rows, structs.replace(settings, mamba_mode=mode))


@functools.cache
def variants(kind: str, replicated: bool) -> tuple[Spec, ...]:
    """The plainest spec of a kind, and those with one thing about its page or its tokens changed."""
    plain = plainest(kind, replicated=replicated)
    if isinstance(plain, MambaSpec):
        twice = structs.replace(plain, shapes=((4096,),))
        return tuple(structs.replace(one, mamba_cache_mode="align") for one in (plain, twice))
    assert isinstance(plain, AttentionSpec)
    made = [
        plain,
        structs.replace(plain, block_size=32),
        structs.replace(plain, num_kv_heads=2),
        structs.replace(plain, page_size_padded=2 * content_bytes(plain)),
        structs.replace(plain, page_size_padded=content_bytes(plain)),
    ]
    if kind == "full":
        made += [structs.replace(plain, attention_chunk_size=size) for size in (128, 256)]
    if hasattr(plain, "alignment"):
        made.append(structs.replace(plain, alignment=576))
    return tuple(cast(Spec, one) for one in made)
