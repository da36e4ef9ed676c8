"""Models and plans that the tests of the oracles start from.

A *right* plan is what the reference answers; a test alters one thing in it. The reference is tested by itself
against values that are written out, and against vLLM.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from oracles.case import (
    Case,
    ChunkedLocalSpec,
    CircularBufferSpec,
    FullSpec,
    HiddenStateSpec,
    Layer,
    MambaSpec,
    MlaSpec,
    Settings,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
    Speculative,
    Worker,
    build_case,
)
from oracles.law import Breach, Contract, Evidence
from oracles.laws import broken_laws
from oracles.plan import Outcome, Plan, Planned, Record
from oracles.reference import RULE_SETS, expected_plan

RULES = RULE_SETS["0.33"]
FULL = FullSpec(block_size=16, num_kv_heads=8, head_size=128)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=1024)
"""Both have pages of 65,536 bytes."""

MLA = MlaSpec(block_size=64, num_kv_heads=1, head_size=128)
"""16,384 bytes."""

STATE = MambaSpec(block_size=256, shapes=((4096,),), dtypes=("float32",), mamba_cache_mode="align")
"""16,384 bytes."""


MEMORY = 2**30 + 2**18
"""Bytes. Not a power of two: a pool that one request's blocks divide breaks law C3, as vLLM's own claim does there."""


def settings(**facts: object) -> Settings:
    """The settings of a test: ``MEMORY`` bytes on one worker, unless stated."""
    return structs.replace(Settings(workers=(Worker(memory=MEMORY),)), **facts)


def model(*parts: tuple[Spec, int], under: Settings | None = None) -> Case:
    """A case with ``count`` layers of each spec, in order."""
    layers = [
        (Layer(name=f"model.{at}.{i}", spec=0), spec) for at, (spec, count) in enumerate(parts) for i in range(count)
    ]
    return build_case(layers, under or settings())


def staged(*stages: list[tuple[Spec, int]], under: Settings | None = None) -> Case:
    """A case with one pipeline stage for each list of parts."""
    layers = [
        (Layer(name=f"stage.{stage}.{at}.{i}", spec=0, stage=stage), spec)
        for stage, parts in enumerate(stages)
        for at, (spec, count) in enumerate(parts)
        for i in range(count)
    ]
    workers = tuple(Worker(memory=MEMORY, stage=stage) for stage in range(len(stages)))
    return build_case(layers, structs.replace(under or settings(), workers=workers))


def right_plan(case: Case, contract: Contract = "native") -> Plan:
    """The reference's plan of a case that every stage accepts."""
    outcome = expected_plan(case, RULES, contract)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def evidence(case: Case, plan: Plan, **more: object) -> Evidence:
    """What a planner that answered ``plan`` is judged by."""
    return structs.replace(Evidence(case=case, contract="native", outcome=Planned(plan=plan)), **more)


def breaches(case: Case, plan: Plan, **more: object) -> list[Breach]:
    """The laws that ``plan`` breaks."""
    return broken_laws(evidence(case, plan, **more))


def broken(case: Case, plan: Plan, **more: object) -> set[str]:
    """The names of the laws that ``plan`` breaks."""
    return {breach.law for breach in breaches(case, plan, **more)}


def groups_only(plan: Plan) -> Plan:
    """``plan`` as if nothing after grouping had been asked."""
    return structs.replace(plan, placement=None, sizes=None, capacity=None)


def with_group(plan: Plan, at: int, **changes: object) -> Plan:
    """``plan`` with fields of one group changed."""
    assert plan.groups is not None
    groups = list(plan.groups)
    groups[at] = structs.replace(groups[at], **changes)
    return structs.replace(plan, groups=tuple(groups))


def with_records(plan: Plan, change: Callable[[int, Record], Record | None], worker: int = 0) -> Plan:
    """``plan`` with the records of one worker changed; None drops one."""
    assert plan.placement is not None
    placement = list(plan.placement)
    changed = [change(at, record) for at, record in enumerate(placement[worker].records)]
    placement[worker] = structs.replace(placement[worker], records=tuple(one for one in changed if one is not None))
    return structs.replace(plan, placement=tuple(placement))


def planned(plan: Plan) -> Outcome:
    """An outcome in which every stage answered."""
    return Planned(plan=plan)


EAGLE = Speculative(method="eagle", tokens=3)
UNUSUAL: dict[str, Case] = {
    "no layers": model(),
    "one layer": model((FULL, 1)),
    "pages of three sizes, blocks outermost": model(
        (FULL, 3), (MLA, 2), (STATE, 5), under=settings(layout="BLHNC", mamba_mode="align")
    ),
    "one group of mixed pages, layers outermost": model(
        (FULL, 2), (structs.replace(FULL, head_size=64), 3), under=settings(layout="LBHNC")
    ),
    "several heads apart from each other": model((FULL, 2), (WINDOW, 4), under=settings(layout="LHBNC")),
    "heads outside layers": model((FULL, 2), (WINDOW, 4), under=settings(layout="BHLNC")),
    "a stage without windows": staged([(FULL, 2), (WINDOW, 2)], [(FULL, 2)]),
    "a stage without layers": staged([(FULL, 2)], []),
    "a stage without a wrapper's layers": staged(
        [(FULL, 2)], [(STATE, 3)], under=settings(layout="BLHNC", mamba_mode="align")
    ),
    "local layers kept whole": model(
        (FULL, 2), (structs.replace(WINDOW, block_size=32, page_size_padded=135_168), 2),
        under=settings(hybrid_manager=False),
    ),
    "a ring beside attention": model(
        (FULL, 2), (CircularBufferSpec(block_size=48, num_kv_heads=1, head_size=64), 2), under=settings(layout="BLHNC")
    ),
    "hidden states larger than the page": model(
        (MLA, 3), (WINDOW, 3), (HiddenStateSpec(block_size=16, num_kv_heads=4, head_size=16_384), 2),
        under=settings(model_len=1024),
    ),
    "replicated and sharded": model(
        (MLA, 4), (structs.replace(WINDOW, replicated=True), 3), under=settings(dcp=8, layout="BLNHC")
    ),
    "padded strides": model(
        (structs.replace(FULL, block_stride_alignment=4099), 2),
        (structs.replace(WINDOW, block_stride_alignment=4099), 2),
    ),
    "aligned latent pages": model(
        (MlaSpec(block_size=64, num_kv_heads=1, head_size=132, dtype="uint8", alignment=576, tokens_per_state=4), 2),
        (SlidingWindowMlaSpec(block_size=64, num_kv_heads=1, head_size=512, sliding_window=128, alignment=576), 3),
        under=settings(layout="BLHNC"),
    ),
    "an odd chunk and a block of one token": model(
        (structs.replace(FULL, block_size=1), 2),
        (ChunkedLocalSpec(block_size=3, num_kv_heads=1, head_size=96, attention_chunk_size=7), 5),
    ),
    "a length that was fitted": model(
        (FULL, 4), under=settings(workers=(Worker(memory=2**24 + 2**16),), auto_fit=True)
    ),
}  # fmt: skip
"""Cases whose right plans look odd: no law may object."""
