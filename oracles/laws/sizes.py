"""Laws of sizes: how many tokens a block stands for, and what must divide what."""

from __future__ import annotations

from collections.abc import Iterator

from oracles.capacity import caches_prefixes, scheduler_block, table_width
from oracles.case import MambaSpec
from oracles.geometry import is_prefix_cacheable, span_tokens
from oracles.law import Breach, Evidence, law
from oracles.laws.reading import first_specs, group_specs


def _has_sizes(evidence: Evidence) -> bool:
    plan = evidence.plan
    return plan is not None and bool(plan.groups) and plan.sizes is not None


@law("S1", applies=_has_sizes)
def scheduler_block_is_the_common_span(evidence: Evidence) -> Iterator[Breach]:
    """The scheduler's block is the least common multiple of the groups' spans.

    A sharded block spans block × dcp tokens, a replicated or recurrent one its block size. Work is cut at the
    scheduler's block, so every group's blocks must end there, and nothing larger is needed.
    """
    plan = evidence.plan
    assert plan is not None and plan.sizes is not None
    spans = [span_tokens(spec, evidence.case.settings.dcp) for spec in first_specs(plan)]
    expected = scheduler_block(spans)
    if plan.sizes.scheduler_block != expected:
        yield Breach(
            law="S1", path="sizes.scheduler_block",
            detail=f"the scheduler's block is {plan.sizes.scheduler_block} tokens, by the spans {spans} {expected}",
        )  # fmt: skip


def _hashes(evidence: Evidence) -> bool:
    if not _has_sizes(evidence):
        return False
    assert evidence.plan is not None
    case, firsts = evidence.case, first_specs(evidence.plan)
    return caches_prefixes(case.settings, case.specs) and not any(
        isinstance(spec, MambaSpec) and spec.mamba_cache_mode != "align" for spec in firsts
    )


@law("S2", applies=_hashes)
def hash_unit_divides_the_spans(evidence: Evidence) -> Iterator[Breach]:
    """The hash unit divides the span of every prefix-cacheable group, and the scheduler's block.

    A block is found again by the hashes of the units in it; a unit that straddles two blocks identifies neither.
    """
    plan = evidence.plan
    assert plan is not None and plan.sizes is not None
    unit = plan.sizes.hash_block
    spans = [span_tokens(spec, evidence.case.settings.dcp) for spec in first_specs(plan) if is_prefix_cacheable(spec)]
    if unit < 1 or any(span % unit for span in (*spans, plan.sizes.scheduler_block)):
        yield Breach(
            law="S2", path="sizes.hash_block",
            detail=f"the hash unit of {unit} tokens does not divide the spans {sorted(set(spans))}",
        )  # fmt: skip


@law("S3", applies=_has_sizes)
def wrapper_and_members_agree(evidence: Evidence) -> Iterator[Breach]:
    """A group and its members agree on block size, span and block-table width, at every DCP size.

    The runner asks the group, the metadata builder the layer: if they differ, one writes rows that the other misreads.
    """
    plan = evidence.plan
    assert plan is not None and plan.groups is not None and plan.sizes is not None
    settings = evidence.case.settings
    for group in plan.groups:
        specs = {spec for _, spec in group_specs(plan, group)}
        spans = {span_tokens(spec, settings.dcp) for spec in specs}
        if spans and spans != {group.span_tokens}:
            yield Breach(
                law="S3", path="groups[].span_tokens",
                detail=f"a group claims a span of {group.span_tokens} tokens, its members {sorted(spans)}",
            )  # fmt: skip
            return
    for width, members in zip(plan.sizes.widths, plan.sizes.member_widths, strict=False):
        if members and (width is None or members != (width,)):
            yield Breach(
                law="S3", path="sizes.widths",
                detail=f"a group asks for a block table of {width} columns, its members for {list(members)}",
            )  # fmt: skip
            return
    length = plan.capacity.model_len if plan.capacity is not None else settings.model_len
    if len(plan.sizes.widths) != len(plan.groups) or (plan.capacity is None and settings.auto_fit):
        return
    for group, width in zip(plan.groups, plan.sizes.widths, strict=True):
        specs = {spec for _, spec in group_specs(plan, group)}
        needed = max((table_width(spec, settings, length) for spec in specs), default=0)
        if width is not None and width < needed:
            yield Breach(
                law="S3", path="sizes.widths.short",
                detail=f"a block table has {width} columns where a request of {length} tokens fills {needed}",
            )  # fmt: skip
            return
