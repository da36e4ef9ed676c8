"""Quality of a plan: what its grouping costs, and the least that any grouping would. A metric, never a failure.

Rules 5 to 8 are heuristics. Fewer groups can cost more bytes (a draft billed at the target's width), so the number of
groups, the padding and the bytes per request are shown together. All figures are in bytes unless named otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from msgspec import Struct

from oracles.capacity import request_blocks, splits_window, total_blocks
from oracles.case import Case, MambaSpec, Settings, Spec
from oracles.geometry import content_bytes, is_split_by_dcp, page_bytes, token_slots
from oracles.laws.reading import group_specs
from oracles.plan import Plan

MOST_LAYERS = 10
"""The optimum is found by looking at every grouping: ten layers of one kind have 42 partitions when they are equal, and
115,975 when all pages differ."""


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
    """The least that any grouping of the same layers would cost; each figure by itself."""

    padding_bytes: int
    request_bytes: int


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

    Every grouping is looked at in which the layers of a group keep the same tokens, for models of at most
    ``MOST_LAYERS`` layers; None for larger ones, and where no request can be billed.
    """
    if not plan.groups or len(case.layers) > MOST_LAYERS:
        return None
    length = plan.capacity.model_len if plan.capacity is not None else case.settings.model_len
    classes: dict[tuple[object, ...], list[Spec]] = {}
    for group in plan.groups:
        for _, spec in group_specs(plan, group):
            if splits_window(spec, case.settings.dcp):
                return None
            classes.setdefault(_interchange(spec), []).append(spec)
    members = list(classes.values())
    used = sum(content_bytes(spec) for one in members for spec in one)
    billed = [request_blocks(one[0], case.settings, length) for one in members]
    widths = [_least_widths([page_bytes(spec) for spec in one]) for one in members]
    padding, request = [], []
    for counts in product(*(range(1, len(one) + 1) for one in members)):
        block = max(width[count] for width, count in zip(widths, counts, strict=True))
        padding.append(sum(counts) * block - used)
        request.append(block * sum(count * blocks for count, blocks in zip(counts, billed, strict=True)))
    return Optimum(padding_bytes=min(padding), request_bytes=min(request))


def _interchange(spec: Spec) -> tuple[object, ...]:
    """Layers with one key may share a group."""
    page = page_bytes(spec) if isinstance(spec, MambaSpec) else None
    return spec.block_size, is_split_by_dcp(spec), token_slots(spec), page


def _least_widths(pages: list[int]) -> dict[int, int]:
    """For each number of groups, the least that the widest of them must hold of ``pages``."""
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
