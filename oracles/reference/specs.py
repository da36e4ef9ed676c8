"""What the rules say of single specs: which merge, which may share a group, how one becomes another.

Source: VLLM.md 3, rules 0, 2, 3, 6 and 8.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TypeVar

from msgspec import structs

from oracles.case import (
    AttentionSpec,
    ChunkedLocalSpec,
    FullSpec,
    LayerSpec,
    MambaSpec,
    MlaSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
)
from oracles.geometry import content_bytes, is_split_by_dcp, page_bytes, token_slots
from oracles.reference.rules import RuleSet

SpecT = TypeVar("SpecT", bound=LayerSpec)

page = functools.lru_cache(maxsize=4096)(page_bytes)
"""Page of a spec in bytes; the same few specs are asked thousands of times."""


def settle(spec: SpecT) -> SpecT:
    """``spec`` with its alignment applied: a latent page's alignment is a padding that the planner states."""
    if isinstance(spec, MlaSpec | SlidingWindowMlaSpec) and spec.alignment is not None:
        size = page_bytes(spec)
        if size != content_bytes(spec):
            return structs.replace(spec, page_size_padded=size)
    return spec


def with_page(spec: SpecT, size: int) -> SpecT:
    """``spec`` padded to a page of ``size`` bytes; no padding is stated where the content fills it."""
    if not isinstance(spec, AttentionSpec | MambaSpec):
        return spec
    if spec.page_size_padded is None and page_bytes(spec) == size:
        return spec
    padded = structs.replace(spec, page_size_padded=size)
    if isinstance(padded, MlaSpec | SlidingWindowMlaSpec) and page_bytes(padded) != size:
        # An alignment sets the page by itself; beyond it only a stated padding can hold.
        padded = structs.replace(padded, alignment=None)
    return padded


def scaled(spec: SpecT, ratio: int) -> SpecT:
    """``spec`` with ``ratio`` times the tokens in a page of ``ratio`` times the bytes."""
    padding = getattr(spec, "page_size_padded", None)
    larger = structs.replace(spec, block_size=spec.block_size * ratio)
    return larger if padding is None else with_page(larger, page_bytes(spec) * ratio)


def merged(specs: Sequence[Spec], rules: RuleSet) -> Spec | None:
    """Rule 2: one spec that says all that ``specs`` (distinct) say, or None.

    Kinds never merge with each other. Full attention may differ in what is only computed: one window or one
    chunk among those that have any, and the causal marks. Everything else must be equal.
    """
    first = specs[0]
    if len(specs) == 1:
        return first
    if any(type(spec) is not type(first) for spec in specs):
        return None
    if not isinstance(first, FullSpec):
        alike = {_without_alignment(spec) for spec in specs}
        return first if len(alike) == 1 else None
    windows = {spec.sliding_window for spec in specs if isinstance(spec, FullSpec)} - {None}
    chunks = {spec.attention_chunk_size for spec in specs if isinstance(spec, FullSpec)} - {None}
    if len(windows) + len(chunks) > 1:
        return None
    together: dict[str, object] = {
        "sliding_window": next(iter(windows), None),
        "attention_chunk_size": next(iter(chunks), None),
        "non_causal": any(spec.non_causal for spec in specs if isinstance(spec, FullSpec)),
    }
    if isinstance(first, MlaSpec) and not rules.decode_marks_agree:
        together["non_causal_multi_token_decode"] = any(
            spec.non_causal_multi_token_decode for spec in specs if isinstance(spec, MlaSpec)
        )
    results = [structs.replace(spec, **together) for spec in specs]
    return results[0] if len({_without_alignment(spec) for spec in results}) == 1 else None


def _without_alignment(spec: Spec) -> Spec:
    """The page holds an alignment's whole effect, so two that give one page do not differ."""
    if isinstance(spec, MlaSpec | SlidingWindowMlaSpec) and spec.alignment is not None:
        return structs.replace(spec, alignment=None)
    return spec


@functools.lru_cache(maxsize=4096)
def slot_key(spec: Spec) -> tuple[object, ...]:
    """Rule 3: specs with one key may share a wrapper: block size, mode and token slots are the same."""
    extra: object = None
    state_page = None
    if isinstance(spec, MambaSpec):
        extra, state_page = spec.prefill_checkpoint_alignment, page(spec)
    elif isinstance(spec, SlidingWindowMlaSpec):
        extra = "latent"  # the same tokens as a plain window, but a kind of its own
    return spec.block_size, is_split_by_dcp(spec), token_slots(spec), extra, state_page


def is_uniform(specs: Iterable[Spec], rules: RuleSet) -> bool:
    """Whether rule 2 or rule 3 takes them all."""
    distinct = list(dict.fromkeys(specs))
    keys = {slot_key(spec) if rules.states_share_pages else slot_key(spec)[:-1] for spec in distinct}
    return len(keys) <= 1 or merged(distinct, rules) is not None


def promoted(spec: Spec, block_size: int) -> Spec:
    """Rule 0: a local layer as its full kind, with blocks of ``block_size`` tokens; others as they are.

    What the layer computes is recorded; what only matters to a shrinking window (retained tokens, replay) goes.
    """
    if not isinstance(spec, SlidingWindowSpec | ChunkedLocalSpec):
        return spec
    target: type[FullSpec] = MlaSpec if isinstance(spec, SlidingWindowMlaSpec) else FullSpec
    facts = {name: value for name, value in structs.asdict(spec).items() if name in target.__struct_fields__}
    facts |= {"block_size": block_size, "page_size_padded": None}
    made = target(**facts)
    if spec.page_size_padded is not None:
        # A padding is a floor set by the backend: it stays, unless the larger block outgrows it.
        made = structs.replace(made, page_size_padded=max(spec.page_size_padded, content_bytes(made)))
    return settle(made)
