"""Quality of a plan: what its grouping costs, and the least that any grouping would. A metric, never a failure.

Rules 5 to 8 are heuristics. Fewer groups can cost more bytes (a draft billed at the target's width), so the number of
groups, the padding and the bytes per request are shown together. All figures are in bytes unless named otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from oracles.capacity import request_blocks, splits_window, total_blocks
from oracles.case import Case, Settings, Spec
from oracles.geometry import ceil_div, content_bytes, is_split_by_dcp, page_bytes, token_slots
from oracles.laws.reading import group_specs
from oracles.plan import Plan

MOST_LAYERS = 10
"""Layers of different pages that may share a group are partitioned in every way, up to this many: ten have 115,975
partitions when all pages differ. Layers of equal pages need no search, however many there are."""


class Quality(Struct, frozen=True, kw_only=True):
    """What one grouping costs.

    ``block_bytes`` is one block id's share of the pool; ``padding_bytes`` what the groups leave unused of it, summed
    over the groups; ``request_bytes`` what one request of the model length holds.
    """

    groups: int
    block_bytes: int
    padding_bytes: int
    request_bytes: int


class Optimum(Struct, frozen=True, kw_only=True):
    """The least that any grouping of the same layers would cost; each figure by itself.

    ``front`` has what must be weighed: (groups, bytes per request) of every grouping than which none has both fewer
    groups and fewer bytes, fewest groups first. Its last entry has the least bytes.
    """

    padding_bytes: int
    request_bytes: int
    front: tuple[tuple[int, int], ...]


class Assessment(Struct, frozen=True, kw_only=True):
    """A plan beside the best that could be done with its layers; no optimum where there are too many to look at.

    ``request_ratio`` is the plan's bytes per request over the least. ``padding_ratio`` compares what one block in every
    group takes, content and padding, so that it is finite where nothing need be padded. 1 is best.
    """

    plan: Quality
    optimum: Optimum | None
    request_ratio: float | None
    padding_ratio: float | None


def assess(case: Case, plan: Plan) -> Assessment | None:
    """The quality of a plan and how far it is from the optimum; None for a plan without groups."""
    found = measure(case, plan)
    if found is None:
        return None
    best = optimum(case, plan)
    used = found.groups * found.block_bytes - found.padding_bytes
    return Assessment(
        plan=found,
        optimum=best,
        request_ratio=None if best is None else _ratio(found.request_bytes, best.request_bytes),
        padding_ratio=None if best is None else _ratio(used + found.padding_bytes, used + best.padding_bytes),
    )


def _ratio(obtained: int, least: int) -> float | None:
    return round(obtained / least, 4) if least > 0 else None


def measure(case: Case, plan: Plan) -> Quality | None:
    """The quality of a plan's groups, as if all layers lay on one worker; None for a plan without groups."""
    if not plan.groups:
        return None
    length = plan.capacity.model_len if plan.capacity is not None else case.settings.model_len
    groups = [[spec for _, spec in group_specs(plan, group)] for group in plan.groups]
    return _cost([one for one in groups if one], case.settings, length)


def _cost(groups: Sequence[Sequence[Spec]], settings: Settings, length: int) -> Quality:
    block = max(sum(page_bytes(spec) for spec in group) for group in groups)
    used = sum(content_bytes(spec) for group in groups for spec in group)
    return Quality(
        groups=len(groups),
        block_bytes=block,
        padding_bytes=len(groups) * block - used,
        request_bytes=block * total_blocks(groups, settings, length),
    )


def optimum(case: Case, plan: Plan) -> Optimum | None:
    """The best that could be done with the layers as ``plan`` has them (its block sizes and pages kept).

    Every grouping is looked at in which the layers of a group keep the same tokens. None where one request cannot be
    billed, and where more than ``MOST_LAYERS`` layers of different pages may share groups.
    """
    if not plan.groups:
        return None
    length = plan.capacity.model_len if plan.capacity is not None else case.settings.model_len
    classes: dict[tuple[object, ...], list[Spec]] = {}
    for group in plan.groups:
        for _, spec in group_specs(plan, group):
            if splits_window(spec, case.settings.dcp):
                return None
            classes.setdefault(_interchange(spec), []).append(spec)
    members = list(classes.values())
    pages = [[page_bytes(spec) for spec in one] for one in members]
    if not members or any(len(one) > MOST_LAYERS and len(set(one)) > 1 for one in pages):
        return None
    used = sum(content_bytes(spec) for one in members for spec in one)
    billed = [request_blocks(one[0], case.settings, length) for one in members]
    widths = [_least_widths(one) for one in pages]
    costs = []
    # The widest group sets the width of all: for each width there may be, no class needs more groups than fit it.
    for block in {width for one in widths for width in one.values()}:
        counts = [min((k for k, width in one.items() if width <= block), default=0) for one in widths]
        if all(counts):
            costs.append((block, sum(counts), sum(k * blocks for k, blocks in zip(counts, billed, strict=True))))
    front: list[tuple[int, int]] = []
    for groups, request in sorted((count, block * blocks) for block, count, blocks in costs):
        if not front or request < front[-1][1]:
            front.append((groups, request))
    return Optimum(
        padding_bytes=min(block * count for block, count, _ in costs) - used,
        request_bytes=front[-1][1],
        front=tuple(front),
    )


def _interchange(spec: Spec) -> tuple[object, ...]:
    """Layers with one key may share a group."""
    return spec.block_size, is_split_by_dcp(spec), token_slots(spec)


def _least_widths(pages: list[int]) -> dict[int, int]:
    """For each number of groups, the least that the widest of them must hold of ``pages``."""
    if len(set(pages)) == 1:
        return {count: pages[0] * ceil_div(len(pages), count) for count in range(1, len(pages) + 1)}
    least: dict[int, int] = {}
    for sums in _groupings(sorted(pages, reverse=True)):
        count, widest = len(sums), max(sums)
        least[count] = min(widest, least.get(count, widest))
    return least


def _groupings(pages: list[int]) -> Iterator[tuple[int, ...]]:
    """The sums of every partition of ``pages``; partitions with the same sums come once at each step."""
    states: set[tuple[int, ...]] = {()}
    for page in pages:
        grown = set()
        for sums in states:
            grown.add(tuple(sorted((*sums, page))))
            for at, one in enumerate(sums):
                grown.add(tuple(sorted((*sums[:at], one + page, *sums[at + 1 :]))))
        states = grown
    yield from states
