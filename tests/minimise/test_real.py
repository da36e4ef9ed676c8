"""Real findings of vLLM 0.32 end at few layers, and at the same ones from different beginnings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.minimise import minimise
from fuzz.pair import Pair
from fuzz.planners.trees import Config, open_launch
from oracles.case import Case, FullSpec, Layer, MambaSpec, Settings, Spec, build_case, case_id
from tests.models import split_by_draft

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    made = Pair(
        open_launch("installed", Config()), open_launch("installed+isolate", Config()), "isolate",
        case_seconds=20.0, memory=2**30,
    )  # fmt: skip
    made.start()
    yield made
    made.close()


def padded_beside_state(layers: int, heads: int) -> Case:
    """A stated padding that is not scaled with its block (corpus/regress)."""
    page = 16 * heads * 64 * 2 * 2
    state = MambaSpec(block_size=16, shapes=((page,),), dtypes=("bfloat16",), mamba_cache_mode="align")
    padded = FullSpec(block_size=16, num_kv_heads=heads, head_size=64, page_size_padded=page)
    rows: list[tuple[Layer, Spec]] = [
        (Layer(name=f"model.layers.{at}", spec=0), padded if at % 3 == 2 else state) for at in range(layers)
    ]
    return build_case(rows, Settings(mamba_mode="align", model_len=32768))


def first_fingerprint(pair: Pair, case: Case, law: str) -> str:
    return next(f.fingerprint for f in pair.ask(case).verdict.findings if f.law == law)


def test_two_beginnings_of_one_fault_end_alike(pair: Pair) -> None:
    ends = set()
    for case in (padded_beside_state(9, 1), padded_beside_state(24, 4)):
        least = minimise(pair, case, first_fingerprint(pair, case, "R1"))
        assert least.complete
        assert len(least.case.layers) == 2
        ends.add(case_id(least.case))
    assert len(ends) == 1


def test_a_draft_that_splits_its_target_needs_three_layers(pair: Pair) -> None:
    case = split_by_draft()
    least = minimise(pair, case, first_fingerprint(pair, case, "G6"))
    assert least.complete
    assert len(least.case.layers) <= 3
    assert least.neighbour is not None
