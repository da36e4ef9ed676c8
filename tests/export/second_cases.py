"""Cases whose second answer is wrong in the tree of ``tests/planners/overlays/second_answers.py``, with their laws."""

from __future__ import annotations

from msgspec import structs

from oracles.case import Case, FullSpec, Layer, MambaSpec, Settings, SlidingWindowSpec, Spec, Worker, build_case
from tests.export.alone import HOSTILE
from tests.planners.overlays import second_answers as wrong

FULL = FullSpec(block_size=16, num_kv_heads=2, head_size=64)
OTHER = FullSpec(block_size=16, num_kv_heads=4, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, sliding_window=512)
DRAFT = FullSpec(block_size=16, num_kv_heads=2, head_size=64, replicated=True)
STATE = MambaSpec(block_size=16, shapes=((4096,),), dtypes=("bfloat16",), mamba_cache_mode="align")

MEMORY = 2**30 + 2**18


def hostile(*specs: Spec, length: int = 1000, **facts: object) -> Case:
    """A case with one layer of each spec, under names that must stay quoted."""
    rows: list[tuple[Layer, Spec]] = [(Layer(name=HOSTILE[at], spec=0), spec) for at, spec in enumerate(specs)]
    settings = structs.replace(Settings(workers=(Worker(memory=MEMORY),), model_len=length), **facts)
    return build_case(rows, settings)


CASES: dict[str, tuple[Case, str]] = {
    "renamed": (hostile(FULL, FULL, WINDOW, length=wrong.BY_NAME), "G8"),
    "renamed_refused": (hostile(FULL, FULL, FULL, length=wrong.REFUSED_BY_NAME), "G8"),
    "again": (hostile(FULL, WINDOW, length=wrong.COUNTING), "G9"),
    "remembered": (hostile(FULL, WINDOW, length=wrong.REMEMBERING), "G9"),
    "permuted": (hostile(FULL, FULL, length=wrong.BY_ORDER), "G11"),
    "permuted_refused": (hostile(FULL, FULL, length=wrong.REFUSED_BY_ORDER), "G11"),
    "block_by_ranks": (hostile(FULL, STATE, length=wrong.BLOCK_BY_RANKS, dcp=4, mamba_mode="align"), "G13"),
    "span_by_ranks": (hostile(structs.replace(DRAFT, block_size=wrong.SPAN_BY_RANKS), dcp=4), "G13"),
    "table_by_ranks": (hostile(DRAFT, DRAFT, length=wrong.TABLE_BY_RANKS, dcp=4), "G13"),
    "fewer_in_more": (hostile(FULL, WINDOW, length=wrong.FEWER_IN_MORE), "C5"),
    "refused_in_more": (hostile(FULL, length=wrong.REFUSED_IN_MORE), "C5"),
    "fewer_by_ranks": (hostile(FULL, FULL, length=wrong.FEWER_BY_RANKS, dcp=2), "C5"),
    "shifted": (hostile(FULL, structs.replace(FULL, head_size=wrong.SHIFTED)), "P7"),
    "shifted_heads": (
        hostile(structs.replace(FULL, head_size=wrong.SHIFTED), structs.replace(FULL, head_size=wrong.SHIFTED),
                layout="LHBNC"),
        "P7",
    ),
    "failing": (hostile(FULL, structs.replace(FULL, head_size=wrong.FAILING)), "P7"),
}  # fmt: skip

TWIN = hostile(FULL, FULL, FULL, WINDOW, length=wrong.BY_HASH)
"""Wrong between two processes (law G9)."""

READ = (
    hostile(FULL, WINDOW, OTHER, layout="BLNHC"),
    hostile(FULL, WINDOW, STATE, WINDOW, FULL, mamba_mode="align", dcp=1),
    hostile(DRAFT, DRAFT, STATE, mamba_mode="align", dcp=4),
)
"""Cases that the installed tree plans: a spec for each layer of a group, several groups, unsplit layers."""
