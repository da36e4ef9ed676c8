"""The *feature tuple* of a case: what makes it unlike other cases to a planner.

A campaign keeps a case that reaches something new; ``kvfuzz stats`` shows what a seed reaches; a test asserts that
three thousand cases reach everything in ``claimed``. Full tuples are too many to enumerate, so what is claimed
are *pairs* of features: most faults need two things to meet, few need three.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from fuzz.strategies.layouts import BLOCK_OUTERMOST
from fuzz.strategies.outline import Branch, outline
from oracles.case import Case, Layout, Spec, kind_of, mode_of
from oracles.geometry import content_bytes, page_bytes

Pages = Literal["alone", "equal", "padded", "divides", "multiple", "byte_off", "token_off", "uneven"]
LayoutClass = Literal["layer_outer", "block_outer", "heads_outside"]
Pipeline = Literal["one_stage", "even", "lacks_kind", "draft_alone", "empty_stage"]
Modes = Literal["sharded", "replicated", "recurrent", "sharded+recurrent", "mixed"]

PRECEDENCE: tuple[Pages, ...] = (
    "byte_off", "token_off", "uneven", "padded", "multiple", "divides", "equal", "alone"
)  # fmt: skip
"""Of several relations in one case, the one that names it: the narrowest first."""

Pair = tuple[str, str, str]


class Features(Struct, frozen=True):
    """What a case shows a planner.

    ``target`` and ``draft`` are the kinds of each, sorted; ``pages`` the narrowest relation to the target's largest
    page; ``forced`` whether the layout is forced on the planner; ``branch`` the branch that the rough plan expects.
    """

    target: tuple[str, ...]
    draft: tuple[str, ...]
    modes: Modes
    pages: Pages
    layout: LayoutClass
    forced: bool
    pipeline: Pipeline
    dcp: bool
    branch: Branch

    def pairs(self) -> Iterator[Pair]:
        """The pairs of features that ``claimed`` is made of: (dimension, one, other)."""
        for at, one in enumerate(self.target):
            for other in self.target[at + 1 :]:
                yield "target×target", one, other
            for other in self.draft:
                yield "target×draft", one, other
            yield "target×branch", one, self.branch
            yield "target×modes", one, self.modes
        for one in self.draft:
            yield "draft×pages", one, self.pages
            yield "draft×layout", one, self.layout
        yield "branch×modes", self.branch, self.modes
        yield "branch×layout", self.branch, self.layout
        yield "branch×pipeline", self.branch, self.pipeline
        yield "branch×pages", self.branch, self.pages
        yield "pages×layout", self.pages, self.layout + (" forced" if self.forced else "")
        yield "pages×modes", self.pages, self.modes
        yield "pipeline×layout", self.pipeline, self.layout
        yield "dcp×branch", "split" if self.dcp else "whole", self.branch


def features(case: Case) -> Features:
    """The feature tuple of ``case``, in some tens of microseconds."""
    target = {layer.spec for layer in case.layers if not layer.draft}
    draft = {layer.spec for layer in case.layers if layer.draft}
    settings = case.settings
    return Features(
        target=tuple(sorted({kind_of(case.specs[at]) for at in target})),
        draft=tuple(sorted({kind_of(case.specs[at]) for at in draft})),
        modes=modes_of(case),
        pages=pages_of(case, target),
        layout=layout_class(settings.layout),
        forced=settings.layout_origin == "forced",
        pipeline=pipeline_of(case),
        dcp=settings.dcp > 1,
        branch=outline(case).branch,
    )


def modes_of(case: Case) -> Modes:
    """How DCP treats the layers together."""
    modes = {mode_of(spec) for spec in case.specs}
    if len(modes) > 1:
        return "mixed" if "replicated" in modes else "sharded+recurrent"
    return modes.pop() if modes else "sharded"


def layout_class(layout: Layout) -> LayoutClass:
    """Layouts that the planner treats alike."""
    if layout in ("LHBNC", "BHLNC"):
        return "heads_outside"
    return "block_outer" if layout in BLOCK_OUTERMOST else "layer_outer"


def pages_of(case: Case, target: set[int]) -> Pages:
    """The narrowest relation of another spec's page to the largest page of the target."""
    specs = case.specs
    pages = [page_bytes(spec) for spec in specs]
    if len(specs) < 2:
        return "alone"
    base = max(target or range(len(specs)), key=pages.__getitem__)
    found = {_relation(spec, pages[at], specs[base], pages[base]) for at, spec in enumerate(specs) if at != base}
    return next(relation for relation in PRECEDENCE if relation in found)


def _relation(spec: Spec, page: int, base: Spec, other: int) -> Pages:
    if page == other:
        return "padded" if content_bytes(spec) != page else "equal"
    gap = abs(page - other)
    if gap <= 1:
        return "byte_off"
    if gap in (page // spec.block_size, other // base.block_size) and min(page, other) > gap:
        return "token_off"
    if other % page == 0:
        return "divides"
    return "multiple" if page % other == 0 else "uneven"


def pipeline_of(case: Case) -> Pipeline:
    """How the stages differ in what they hold."""
    stages = case.settings.stages
    if stages == 1:
        return "one_stage"
    held: list[set[int]] = [set() for _ in range(stages)]
    target_at: set[int] = set()
    draft_at: set[int] = set()
    for layer in case.layers:
        held[layer.stage].add(layer.spec)
        (draft_at if layer.draft else target_at).add(layer.stage)
    if not all(held):
        return "empty_stage"
    if draft_at - target_at:
        return "draft_alone"
    return "even" if all(one == held[0] for one in held) else "lacks_kind"
