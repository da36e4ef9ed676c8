"""Laws of placement: no two live pages share a byte, and the pool is what it says.

All groups of a worker lie over the same bytes; a block id belongs to one group at a time. Under a layout that was
forced on the engine a fault is a gap in its guards, and its path says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from oracles.case import MultipleOf, Spec
from oracles.geometry import content_bytes, page_bytes, stride_alignment, with_block_size
from oracles.law import Breach, Evidence, law
from oracles.laws.reading import own_specs, planned_specs
from oracles.placement import BLOCK_OUTERMOST, Page, first_overlap, is_own_tensor, placed_pages, record_bases
from oracles.plan import Placement


def _is_placed(evidence: Evidence) -> bool:
    plan = evidence.plan
    return plan is not None and plan.groups is not None and plan.placement is not None


def _has_layouts(evidence: Evidence) -> bool:
    """Placed by a layout (0.29 on); before, layers alias tensors of their own."""
    if not _is_placed(evidence):
        return False
    return not any(record.aliased for placement in _pools(evidence) for record in placement.records)


def _pools(evidence: Evidence) -> tuple[Placement, ...]:
    assert evidence.plan is not None and evidence.plan.placement is not None
    return evidence.plan.placement


def _breach(evidence: Evidence, name: str, path: str, detail: str) -> Breach:
    forced = ".forced" if evidence.case.settings.layout_origin == "forced" else ""
    return Breach(law=name, path=f"placement[].{path}{forced}", detail=detail)


_last: tuple[object, list[list[Page]]] = (None, [])
"""The pages of the plan looked at last: half a dozen laws in a row ask for the same ones."""


def _pages(evidence: Evidence) -> list[list[Page]]:
    """Each worker's pages; those of layers that it has not got are law M1's."""
    global _last
    plan = evidence.plan
    assert plan is not None
    if _last[0] is not plan:
        planned = planned_specs(plan)
        settings, layers = evidence.case.settings, evidence.case.layers
        mine = {
            stage: {one.name: planned[one.name] for one in layers if one.stage == stage and one.name in planned}
            for stage in {worker.stage for worker in settings.workers}
        }
        made = [
            placed_pages(settings.layout, placement, mine[worker.stage])
            for worker, placement in zip(settings.workers, _pools(evidence), strict=False)
        ]
        _last = (plan, made)
    return _last[1]


@law("M1", applies=_is_placed)
def every_layer_has_one_place(evidence: Evidence) -> Iterator[Breach]:
    """Each worker places each of its layers once, and no layer of another worker.

    A worker allocates what its records say: a layer of another stage costs memory or lands in a page of another size.
    """
    for worker, placement in zip(evidence.case.settings.workers, _pools(evidence), strict=False):
        mine = {layer.name for layer in evidence.case.layers if layer.stage == worker.stage}
        placed = Counter(name for record in placement.records for name in record.layers)
        grouped = Counter(name for group in placement.group_layers for name in group)
        for path, names, words in (
            ("layers.missing", mine - placed.keys(), "not placed on its worker"),
            ("layers.foreign", placed.keys() - mine, "placed on a worker that has not got it"),
            ("layers.twice", {n for n, count in placed.items() if count > 1}, "placed twice"),
            ("group_layers", mine ^ grouped.keys(), "in no group of its worker, or in one of another"),
        ):
            if names:
                yield _breach(evidence, "M1", path, f"{', '.join(sorted(names)[:3])}: {words}")
                return


@law("M2", applies=_is_placed)
def the_pool_is_full(evidence: Evidence) -> Iterator[Breach]:
    """A worker's records state one pool of whole blocks; it fits the memory, and one block more would not.

    All workers have the same number of blocks, so the smallest memory decides.
    """
    settings = evidence.case.settings
    pools = _pools(evidence)
    if len({placement.num_blocks for placement in pools}) > 1:
        yield _breach(evidence, "M2", "num_blocks", "workers have different numbers of blocks")
        return
    full = False
    used = [(w, p) for w, p in zip(settings.workers, pools, strict=False) if p.records]
    for worker, placement in used:
        own = [record.size for record in placement.records if is_own_tensor(record)]
        pooled = {record.size for record in placement.records if not is_own_tensor(record)}
        size = sum(own) + max(pooled, default=0)
        uneven = placement.num_blocks < 1 or any(one < 1 or one % placement.num_blocks for one in (*own, *pooled))
        if len(pooled) > 1 or uneven:
            words = f"records state pools of {sorted({*own, *pooled})[:3]} bytes for {placement.num_blocks} blocks"
            yield _breach(evidence, "M2", "size", words)
            return
        if settings.block_override is None and size > worker.memory:
            words = f"a pool of {size} bytes was planned into {worker.memory}"
            yield _breach(evidence, "M2", "size.memory", words)
            return
        full = full or size + size // placement.num_blocks > worker.memory
    if settings.block_override is None:
        if used and not full:
            yield _breach(evidence, "M2", "num_blocks.more", "every worker has memory for one block more")
    elif used and pools[0].num_blocks != settings.block_override:
        words = f"{pools[0].num_blocks} blocks were planned, {settings.block_override} asked for"
        yield _breach(evidence, "M2", "num_blocks.override", words)


@law("M3", applies=_is_placed)
def pages_lie_in_the_pool(evidence: Evidence) -> Iterator[Breach]:
    """Every page of every block lies inside the pool.

    A page outside it is written into whatever the allocator put there.
    """
    for placement, pages in zip(_pools(evidence), _pages(evidence), strict=False):
        bounds = {
            name: (base, base + record.size)
            for base, record in zip(record_bases(placement), placement.records, strict=True)
            for name in record.layers
        }
        for page in pages:
            last = max(run.end(placement.num_blocks) for run in page.runs)
            first, end = bounds[page.layer]
            if page.runs[0].start < first or last > end:
                words = f"{page.layer} ends at byte {last - first} of a pool of {end - first}"
                yield _breach(evidence, "M3", "bounds", words)
                return


@law("M4", applies=_is_placed)
def layers_of_a_group_are_apart(evidence: Evidence) -> Iterator[Breach]:
    """Pages of one group never share a byte, whatever their layers and blocks.

    All of them hold live tokens at the same time.
    """
    for placement, pages in zip(_pools(evidence), _pages(evidence), strict=False):
        by_group: dict[int, list[Page]] = {}
        for page in pages:
            by_group.setdefault(page.group, []).append(page)
        for members in by_group.values():
            runs = [(at, run) for at, page in enumerate(members) for run in page.runs]
            found = first_overlap(runs, placement.num_blocks, across=False)
            if found is not None:
                words = f"pages of {members[found[0]].layer} and {members[found[1]].layer}, in one group, share bytes"
                yield _breach(evidence, "M4", "overlap.group", words)
                return


@law("M5", applies=_is_placed)
def blocks_of_different_groups_are_apart(evidence: Evidence) -> Iterator[Breach]:
    """Pages of different block ids never share a byte, in whatever groups.

    Groups overlay each other: only the block id keeps one group's write out of another's page.
    """
    for placement, pages in zip(_pools(evidence), _pages(evidence), strict=False):
        runs = [(page.group, run) for page in pages for run in page.runs]
        found = first_overlap(runs, placement.num_blocks, across=True)
        if found is not None:
            words = f"different blocks of groups {found[0]} and {found[1]} share bytes"
            yield _breach(evidence, "M5", "overlap.blocks", words)
            return


@law("M6", applies=_is_placed)
def content_fits_the_page(evidence: Evidence) -> Iterator[Breach]:
    """What a layer writes for one block fits the page it was given.

    Judged by the layer's own geometry at the planned block size: a group that took another layer's is found here.
    """
    own = own_specs(evidence.case)
    checked: set[tuple[int, int]] = set()
    for pages in _pages(evidence):
        for page in pages:
            mine = own.get(page.layer)
            if mine is None or (id(mine), id(page.spec)) in checked:
                continue
            checked.add((id(mine), id(page.spec)))
            needed = _content_at(mine, page.spec.block_size)
            room = page_bytes(page.spec)
            if needed > room:
                words = f"{page.layer} writes {needed} bytes a block into a page of {room}"
                yield _breach(evidence, "M6", "page", words)
                return


def _content_at(spec: Spec, block_size: int) -> int:
    return content_bytes(with_block_size(spec, block_size))


@law("M7", applies=_is_placed)
def strides_keep_their_alignment(evidence: Evidence) -> Iterator[Breach]:
    """The distance between two blocks of a layer is a multiple of the alignment its backend asks for.

    Kernels load whole rows by it; beside it they read another block's bytes or fault. Where a page is not one run
    of bytes, a kernel block is a run of each head, and so is the alignment that is counted in kernel blocks.
    """
    for placement, pages in zip(_pools(evidence), _pages(evidence), strict=False):
        if placement.num_blocks < 2:
            continue
        for page in pages:
            unit = stride_alignment(page.spec)
            if isinstance(page.spec.block_stride_alignment, MultipleOf):
                unit //= len(page.runs)
            if unit > 1 and page.runs[0].stride % unit:
                words = f"blocks of {page.layer} lie {page.runs[0].stride} bytes apart, not a multiple of {unit}"
                yield _breach(evidence, "M7", "block_stride", words)
                return


@law("M9", applies=_has_layouts)
def places_scale_with_the_blocks(evidence: Evidence) -> Iterator[Breach]:
    """Offsets and strides are one function of the block count, so that a small pool proves a large one.

    Blocks outermost: nothing depends on the count. Layers outermost: each layer begins a whole number of bytes per
    block into the pool.
    """
    outer = evidence.case.settings.layout in BLOCK_OUTERMOST
    for placement, pages in zip(_pools(evidence), _pages(evidence), strict=False):
        if placement.num_blocks < 1:
            continue
        for page in pages:
            first = page.runs[0]
            fits = first.start < first.stride if outer else first.start % placement.num_blocks == 0
            if not fits and placement.num_blocks > 1:
                words = f"{page.layer} begins at byte {first.start}, which no pool of another size would give"
                yield _breach(evidence, "M9", "offset", words)
                return
