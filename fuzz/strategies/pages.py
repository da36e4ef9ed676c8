"""Page relations, drawn on purpose: gives a spec a page that stands in a stated relation to another's.

Most faults of the planner live where two page sizes *almost* fit, and independent random geometries almost
never meet there. The levers are the block size first, then the padding; the kind and its quirks are kept.
"""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from fuzz.strategies.source import Source
from oracles.case import AttentionSpec, MambaSpec, Spec, is_latent
from oracles.geometry import content_bytes, page_bytes, states_per_block, stride_alignment, with_block_size

Relation = Literal[
    "free", "equal", "divides", "multiple", "just_fits", "byte_more", "byte_less", "token_off", "coprime"
]
RELATIONS: tuple[Relation, ...] = (
    "free", "equal", "equal", "divides", "multiple", "just_fits", "byte_more", "byte_less", "token_off", "coprime",
)  # fmt: skip
"""How the new page stands to the old: as drawn; the same bytes; a whole fraction; a whole multiple; one unit
short and padded to it; one byte more or less by padding; one token more or less; neither divides the other."""

FACTORS = (2, 4, 3, 8, 9, 5)
MAX_BLOCK = 1 << 14
"""Tokens. Solving for a block size stops here; larger ones appear in no model."""

MAX_HEADS = 128
"""Heads. Solving for heads stops here."""

MAX_PAGE = 1 << 32
"""Bytes. Four times the largest page published; keeps multiples of multiples in bounds."""


def relate(source: Source, spec: Spec, page: int, relation: Relation) -> Spec:
    """``spec`` with its page in ``relation`` to ``page`` bytes, or unchanged when that cannot be had."""
    # Through the heads the block stays, so that pages of several sizes can still be of one type.
    by_heads = source.chance(30)
    if relation == "free":
        return spec
    if relation == "coprime":
        return _coprime(spec, page)
    if relation == "divides":
        parts = [page // factor for factor in FACTORS if page % factor == 0]
        return _exact(spec, source.choice(parts), by_heads=by_heads) if parts else spec
    if relation == "multiple":
        return _exact(spec, min(page * source.choice(FACTORS[:4]), MAX_PAGE), by_heads=by_heads)
    if relation == "just_fits":
        return _padded_to(spec, page, spare=1)
    if relation == "byte_more":
        return _padded_to(spec, page + 1, spare=0)
    if relation == "byte_less":
        return _padded_to(spec, page - 1, spare=0)
    exact = _exact(spec, page, by_heads=by_heads)
    if relation == "token_off" and not isinstance(exact, MambaSpec):
        return _block(exact, exact.block_size + (1 if exact.block_size == 1 or source.chance(50) else -1))
    return exact


def _natural(spec: Spec) -> Spec:
    """``spec`` without a stated padding."""
    return spec if spec.page_size_padded is None else structs.replace(spec, page_size_padded=None)


def _block(spec: Spec, block_size: int) -> Spec:
    """``spec`` with another block size and no stated padding, if a state still fits a block."""
    changed = with_block_size(_natural(spec), min(max(block_size, 1), MAX_BLOCK))
    assert not isinstance(changed, MambaSpec)
    return changed if states_per_block(changed) and stride_alignment(changed) else spec


def _exact(spec: Spec, page: int, *, by_heads: bool = False) -> Spec:
    """A page of exactly ``page`` bytes, by block size or heads where a whole number gives it, else by padding."""
    natural = _natural(spec)
    if by_heads and isinstance(natural, AttentionSpec) and not is_latent(natural) and natural.num_head_slots is None:
        heads, rest = divmod(page * natural.num_kv_heads, page_bytes(natural))
        if not rest and 1 <= heads <= MAX_HEADS:
            return structs.replace(natural, num_kv_heads=heads)
    if isinstance(natural, MambaSpec):
        return _padded_to(natural, page, spare=0)
    held = page_bytes(natural)
    if natural.block_size * page % held == 0:
        candidate = _block(natural, natural.block_size * page // held)
        if page_bytes(candidate) == page:
            return candidate
    return _padded_to(natural, page, spare=0)


def _padded_to(spec: Spec, page: int, *, spare: int) -> Spec:
    """The largest content that leaves at least ``spare`` bytes of ``page``, padded to it."""
    natural = _natural(spec)
    if getattr(natural, "alignment", None) is not None:
        return spec  # an alignment pads by itself and overrides a stated padding
    content = content_bytes(natural)
    if isinstance(natural, MambaSpec):
        if content > page - spare:
            return spec
    elif natural.block_size * (page - spare) // content >= 1:
        natural = _block(natural, natural.block_size * (page - spare) // content)
        content = content_bytes(natural)
    if content > page - spare or page < 1:
        return spec
    return natural if content == page else structs.replace(natural, page_size_padded=page)


def _coprime(spec: Spec, page: int) -> Spec:
    """Neither page divides the other: odd blocks are tried, small first."""
    if isinstance(spec, MambaSpec):
        return structs.replace(spec, page_size_padded=max(content_bytes(spec), page) + 7)
    for block in (spec.block_size, 17, 48, 7, 33):
        candidate = _block(spec, block)
        other = page_bytes(candidate)
        if page % other and other % page:
            return candidate
    return spec
