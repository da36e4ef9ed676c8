"""Rule 5 from 0.29 on: groups of several page sizes. Source: VLLM.md 3.

A *layer map* gives each layer's spec, in order. A *bucket* holds layers that may share a wrapper (rule 3), by page
size. Balanced buckets, with equally many layers of each size, are dealt out in rounds of one layer of each size.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from oracles.geometry import ceil_div
from oracles.reference.rules import RuleSet
from oracles.reference.specs import page, slot_key
from oracles.specs import CircularBufferSpec, MambaSpec, SlidingWindowSpec, Spec

LayerMap = dict[str, Spec]


class Made(Struct, frozen=True, kw_only=True):
    """A group as the rules make it. ``spec`` is None for a wrapper; ``specs`` has one entry per layer."""

    layers: tuple[str, ...]
    specs: tuple[Spec, ...]
    spec: Spec | None = None


def wrapper(layers: LayerMap, names: Iterable[str] | None = None) -> Made:
    """A group that keeps a spec per layer."""
    chosen = tuple(layers if names is None else names)
    return Made(layers=chosen, specs=tuple(layers[name] for name in chosen))


def plain(names: Iterable[str], spec: Spec) -> Made:
    """A group with one spec for all."""
    chosen = tuple(names)
    return Made(layers=chosen, specs=(spec,) * len(chosen), spec=spec)


class Bucket(Struct, frozen=True, kw_only=True):
    """Layers that may share a wrapper, by page size in order of first appearance."""

    layers: LayerMap
    by_page: dict[int, list[str]]

    @property
    def repeats(self) -> int:
        """Layers of the most frequent page size: how often the pattern of layers repeats."""
        return max(len(names) for names in self.by_page.values())

    @property
    def balanced(self) -> bool:
        """Whether each page size has equally many layers."""
        return len({len(names) for names in self.by_page.values()}) == 1

    @property
    def mixed(self) -> bool:
        """Whether there are several page sizes."""
        return len(self.by_page) > 1

    def widest(self, groups: int) -> int:
        """Bytes per block of the widest of ``groups`` equal shares."""
        return sum(size * ceil_div(len(names), groups) for size, names in self.by_page.items())


def packed(layers: LayerMap, rules: RuleSet) -> list[Made]:
    """Wrapper groups for a layout in which a block holds all layers' pages."""
    buckets = _buckets(layers)
    patterns = [bucket for bucket in buckets if bucket.balanced]
    floor = max((bucket.repeats for bucket in patterns if bucket.mixed), default=0)
    repeats = least_padding([bucket.repeats for bucket in patterns], floor) if floor else None

    def is_state(bucket: Bucket) -> bool:
        kind = next(iter(bucket.layers.values()))
        if isinstance(kind, MambaSpec):
            return True
        if not rules.windows_are_state:
            return False
        return isinstance(kind, CircularBufferSpec) or (repeats is None and isinstance(kind, SlidingWindowSpec))

    def shares(bucket: Bucket) -> int:
        return ceil_div(bucket.repeats, repeats) if repeats is not None and bucket.balanced else 1

    width = max((b.widest(len(b.layers) if is_state(b) else shares(b)) for b in buckets), default=0)
    groups = []
    for bucket in buckets:
        count = shares(bucket)
        if is_state(bucket) and bucket.balanced:
            # Whole rounds are dealt: an unbalanced bucket has none without dropping layers, so it stays whole.
            rounds = max(width // sum(bucket.by_page), 1)
            count = max(count, ceil_div(bucket.repeats, rounds))
        groups += deal(bucket, count)
    return groups


def _buckets(layers: LayerMap) -> list[Bucket]:
    """Layers by what rule 3 lets share a group, in order of first appearance."""
    sorted_in: dict[tuple[object, ...], LayerMap] = {}
    for name, spec in layers.items():
        sorted_in.setdefault(slot_key(spec), {})[name] = spec
    buckets = []
    for members in sorted_in.values():
        buckets.append(bucket_of(members))
    return buckets


def bucket_of(members: LayerMap) -> Bucket:
    """A bucket of these layers."""
    by_page: dict[int, list[str]] = {}
    for name, spec in members.items():
        by_page.setdefault(page(spec), []).append(name)
    return Bucket(layers=members, by_page=by_page)


def least_padding(counts: list[int], floor: int) -> int:
    """The repeats value from ``floor`` to the largest count that pads the counts least; the larger on ties."""
    return min(range(floor, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


def deal(bucket: Bucket, count: int) -> list[Made]:
    """A balanced bucket in ``count`` groups, round-robin by rounds of one layer of each page size."""
    if count == 1:
        return [wrapper(bucket.layers)]
    rounds = list(zip(*bucket.by_page.values(), strict=True))
    return [wrapper(bucket.layers, [name for one in rounds[first::count] for name in one]) for first in range(count)]
