"""Whether the tensors that vLLM made of a plan lie where we say that its pages lie (check ``P7``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from fuzz.planners.protocol import View, Viewed
from fuzz.replay.memory.pools import Page, Pool, is_replayable, pools_of
from oracles.case import Case
from oracles.law import Breach
from oracles.plan import Plan


def views_against(case: Case, plan: Plan, views: Sequence[Viewed]) -> tuple[Breach, ...]:
    """Breaches of ``P7``: a layer without a view, or one that is not on the layer's own pages.

    ``views`` are those of an answer to a question of depth ``views``; none for a tree that makes no views.

    Raises:
        NotReplayable: the records of a worker state pools of several sizes.
    """
    forced = ".forced" if case.settings.layout_origin == "forced" else ""
    return tuple(
        Breach(
            law="P7", path=f"placement[].views.{one.field}{forced}", detail=f"worker {one.worker}: {one.words}",
            error=one.error,
        )
        for one in view_differences(case, plan, views)
    )  # fmt: skip


class ViewDifference(Struct, frozen=True, kw_only=True):
    """How a worker's views are not on the pages, told by its first layer of which that is so.

    ``field`` is the last part of the breach's path; ``page`` is None where making the views ended in ``error``.
    """

    worker: int
    field: str
    words: str
    error: str = ""
    page: Page | None = None


def view_differences(case: Case, plan: Plan, views: Sequence[Viewed]) -> Iterator[ViewDifference]:
    """What ``views_against`` tells of, one for each worker at most. Raises NotReplayable."""
    if not views or not is_replayable(plan):
        return
    for pool in pools_of(case, plan):
        viewed = views[pool.worker]
        if viewed.error:
            words = f"vLLM makes views of {len(viewed.views)} layers, then {viewed.error}: {viewed.message}"
            yield ViewDifference(worker=pool.worker, field="error", words=words, error=viewed.error)
            continue
        for page, field, words in _differences(pool, viewed):
            yield ViewDifference(worker=pool.worker, field=field, words=words, page=page)
            break


def _differences(pool: Pool, viewed: Viewed) -> Iterator[tuple[Page, str, str]]:
    made = {view.layer: view for view in viewed.views}
    for page in pool.pages:
        view = made.get(page.layer)
        if view is None:
            yield page, "missing", f"vLLM makes no view of {page.layer}"
        elif 0 in view.shape:
            yield page, "empty", f"the view of {page.layer} is empty: its blocks hold no state"
        elif words := _difference(page, view, pool.num_blocks):
            yield page, "place", f"the view of {page.layer} {words}"


def _difference(page: Page, view: View, blocks: int) -> str:
    """How a view differs from its pages; empty when it does not. A page's padding is outside every view."""
    if view.offset != page.start:
        return f"begins at byte {view.offset}, its pages at {page.start}"
    if view.shape[0] != blocks:
        return f"has {view.shape[0]} blocks of {blocks}"
    if blocks > 1 and view.strides[0] != page.block_stride:
        return f"steps {view.strides[0]} bytes from block to block, its pages {page.block_stride}"
    if page.heads > 1 and (view.shape[1], view.strides[1]) != (page.heads, page.head_stride):
        return f"has {view.shape[1]} heads {view.strides[1]} bytes apart, its pages {page.heads} and {page.head_stride}"
    inner = 2 if page.heads > 1 else 1
    extent = view.item_bytes + sum(
        (size - 1) * step for size, step in zip(view.shape[inner:], view.strides[inner:], strict=True)
    )
    if extent > page.strip:
        return f"takes {extent} bytes at once, its pages {page.strip}"
    return ""
