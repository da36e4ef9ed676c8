"""Before layouts (0.26 to 0.28): latent layers in tuples, and layers that share tensors. Source: VLLM.md 3.

A page is one run of bytes, and there are no layouts. Groups of equal pages share tensors: the first layers of all
groups lie over one, the second layers over the next. A single wrapper gives each layer a tensor of its own. Several
wrappers share one pool, in which a block holds the pages of its group one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oracles.placement import GroupSpecs
from oracles.plan import Record
from oracles.reference.packing import LayerMap, Made, bucket_of, deal, least_padding, wrapper
from oracles.reference.rules import RuleSet
from oracles.reference.specs import is_uniform, page, with_page
from oracles.specs import MlaSpec, SlidingWindowMlaSpec


def latent_tuples(layers: LayerMap, rules: RuleSet) -> list[Made] | None:
    """The groups of a model of MLA and windowed MLA whose pages differ; None where the path does not hold.

    It holds when the plain latent layers may share a wrapper, and each block size and window of the others forms
    whole tuples. A model with any other layer goes the common way: none may be left out.
    """
    latent: LayerMap = {name: spec for name, spec in layers.items() if isinstance(spec, MlaSpec)}
    windowed: dict[tuple[int, int], LayerMap] = {}
    for name, spec in layers.items():
        if isinstance(spec, SlidingWindowMlaSpec):
            windowed.setdefault((spec.block_size, spec.sliding_window), {})[name] = spec
    if not latent or not windowed or len(latent) + sum(len(one) for one in windowed.values()) < len(layers):
        return None
    if len({page(spec) for spec in layers.values()}) < 2 or not is_uniform(latent.values(), rules):
        return None
    counts = [bucket_of(latent).repeats, *(bucket_of(members).repeats for members in windowed.values())]
    repeats = least_padding(counts, counts[0])
    if rules.aligns_tuples:
        sizes = sorted({page(spec) for spec in latent.values()})
        if any(page(spec) > sizes[-1] for members in windowed.values() for spec in members.values()):
            return None  # no latent page holds the window's
        windowed = {
            key: {n: with_page(s, next(size for size in sizes if size >= page(s))) for n, s in members.items()}
            for key, members in windowed.items()
        }  # fmt: skip
    buckets = [bucket_of(members) for members in windowed.values()]
    if not all(bucket.balanced for bucket in buckets):
        return None
    return [wrapper(latent), *(group for bucket in buckets for group in deal(bucket, -(-bucket.repeats // repeats)))]


def slots(groups: Sequence[GroupSpecs], rules: RuleSet, *, wrapped: bool) -> dict[int, list[tuple[str, int]]]:
    """The layers over each slot of a block, with their pages in bytes; slots by their first byte in a block.

    ``wrapped`` tells whether the groups are wrappers, whose pages may differ.
    """
    found: dict[int, list[tuple[str, int]]] = {}
    starts = _aligned_starts(groups) if wrapped and rules.aligns_tuples else None
    for group in groups:
        offset = 0
        seen: dict[int, int] = {}
        for name, spec in group:
            size = page(spec)
            at = offset if starts is None else starts[size] + seen.get(size, 0) * size
            found.setdefault(at, []).append((name, size))
            offset += size
            seen[size] = seen.get(size, 0) + 1
    return found


def _aligned_starts(groups: Sequence[GroupSpecs]) -> dict[int, int]:
    """Where the slots of each page size begin in a block: sizes in order of appearance, each as often as needed."""
    most: dict[int, int] = {}
    for group in groups:
        pages = [page(spec) for _, spec in group]
        for size in pages:
            most[size] = max(most.get(size, 0), pages.count(size))
    starts, offset = {}, 0
    for size, count in most.items():
        starts[size] = offset
        offset += size * count
    return starts


def block_bytes(groups: Sequence[GroupSpecs], rules: RuleSet, *, wrapped: bool) -> int:
    """Bytes that one block id takes on this worker: up to the end of the last slot."""
    return max(at + size for at, held in slots(groups, rules, wrapped=wrapped).items() for _, size in held)


def tensors(groups: Sequence[GroupSpecs], num_blocks: int, rules: RuleSet, *, wrapped: bool) -> Iterator[Record]:
    """The tensors of one worker. A ``block_stride`` of 0: blocks lie a page apart, in a tensor of their own."""
    pooled = wrapped and len(groups) > 1
    stride = block_bytes(groups, rules, wrapped=wrapped)
    for at, held in slots(groups, rules, wrapped=wrapped).items():
        names = tuple(name for name, _ in held)
        if pooled:
            yield Record(size=stride * num_blocks, layers=names, offset=at, block_stride=stride, aliased=True)
        else:
            yield Record(size=held[0][1] * num_blocks, layers=names, block_stride=0, aliased=True)
