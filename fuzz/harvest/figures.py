"""What a person wants to know of a plan: its groups, the bytes of a block, the padding, the capacity."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec
from msgspec import Struct

from oracles.case import Case, mode_of
from oracles.geometry import content_bytes
from oracles.laws.reading import group_specs
from oracles.plan import Died, Group, Outcome, Plan, Refused, TimedOut, Unsupported, plan_of

_CANONICAL = msgspec.json.Encoder(order="sorted")


class GroupFigures(Struct, frozen=True, kw_only=True):
    """One group: layers, how many of them are a draft's, kind, block and span in tokens, bytes of its page.

    ``padding_percent`` is the share of each block that it leaves unused; None where the pool could not be laid out.
    ``draft`` is the planner's own mark, which not every method of speculation asks for.
    """

    layers: int
    draft_layers: int
    kind: str
    mode: str
    draft: bool
    wrapper: bool
    block_size: int
    span_tokens: int
    page_bytes: int
    padding_percent: float | None


class Figures(Struct, frozen=True, kw_only=True):
    """One plan. ``block_bytes`` is one block id's share of the first worker's pool; ``refused`` says at which stage
    there is nothing, and why. ``owner`` is what groups in place of vLLM's own rules. ``unsaid`` marks a
    case that could not be put to this planner at all, so that nothing is known of it.
    """

    groups: tuple[GroupFigures, ...] = ()
    block_bytes: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    concurrency: float | None = None
    model_len: int | None = None
    refused: str = ""
    owner: str = ""
    unsaid: bool = False
    digest: str

    def shape(self) -> str:
        """The groups in a few words: how many of which width, kind and block."""
        words = Counter(
            f"{g.layers} {g.kind}{'' if g.mode != 'replicated' else ' R'} @{g.block_size}" for g in self.groups
        )
        return "; ".join(f"{count} × {word}" if count > 1 else word for word, count in words.items())


def figures_of(case: Case, outcome: Outcome) -> Figures:
    """The figures of an outcome."""
    plan = plan_of(outcome)
    digest = hashlib.sha256(_CANONICAL.encode(outcome)).hexdigest()[:8]
    if plan is None:
        return Figures(refused=_nothing(outcome), unsaid=isinstance(outcome, Unsupported), digest=digest)
    block_bytes = blocks = None
    if plan.placement:
        first = plan.placement[0]
        blocks = first.num_blocks
        block_bytes = max((record.size for record in first.records), default=0) // blocks if blocks else None
    capacity = plan.capacity
    return Figures(
        groups=tuple(_group(case, plan, group, block_bytes) for group in plan.groups or ()),
        block_bytes=block_bytes, blocks=blocks, tokens=capacity.tokens if capacity else None,
        concurrency=capacity.concurrency if capacity else None, model_len=capacity.model_len if capacity else None,
        refused=_refusal(outcome), owner=plan.owner, digest=digest,
    )  # fmt: skip


def _group(case: Case, plan: Plan, group: Group, block_bytes: int | None) -> GroupFigures:
    by_name = {layer.name: case.spec_of(layer) for layer in case.layers}
    modes = sorted({mode_of(by_name[name]) for name in group.layers if name in by_name})
    drafts = {layer.name for layer in case.layers if layer.draft}
    used = sum(content_bytes(spec) for _, spec in group_specs(plan, group))
    return GroupFigures(
        layers=len(group.layers), draft_layers=len(drafts.intersection(group.layers)), kind=group.kind,
        mode="+".join(modes), draft=group.draft, wrapper=group.is_wrapper,
        block_size=group.block_size, span_tokens=group.span_tokens, page_bytes=group.page_bytes,
        padding_percent=round(100 * (block_bytes - used) / block_bytes, 1) if block_bytes else None,
    )  # fmt: skip


def _refusal(outcome: Outcome) -> str:
    if not isinstance(outcome, Refused):
        return ""
    first = outcome.first
    message = first.message.strip().splitlines()
    return f"{first.stage}: {first.type}: {message[0][:200] if message else '(no message)'}"


def _nothing(outcome: Outcome) -> str:
    if isinstance(outcome, Died):
        return f"died: {outcome.cause}"
    if isinstance(outcome, TimedOut):
        return f"no answer within {outcome.seconds:g} s"
    assert isinstance(outcome, Unsupported)
    return f"cannot be said to this vLLM: {outcome.field}" + (f": {outcome.reason}" if outcome.reason else "")
