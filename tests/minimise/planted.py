"""Planted defects and the smallest cases that show them.

``python -m tests.minimise.planted corpus/planted`` makes the folder's cases again: one for each defect of
``tests/mutants``, minimised from the first drawn case that shows it. A run asks them all before it draws anything, so
a defect like one of these need not be met by chance again.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import structs

from fuzz.case_files import write_case
from fuzz.minimise import minimise
from fuzz.pair import Pair
from fuzz.planners.trees import Config, open_launch
from fuzz.score.mutants import BASE_ADDRESS, Mutant, read_mutants
from fuzz.strategies import Shape, draw_case, vocabulary_of
from oracles.case import Case, Provenance, case_id

MUTANTS = Path(__file__).parents[1] / "mutants"

BATCH = 48
BATCHES = 60
"""A defect that shows in none of this many batches is one that the score measures, not the minimiser."""

MORE_BATCHES = 250
"""For the corpus, which is made once."""

ELSEWHERE = {"mamba_table_divided": "regress/recurrent-span-is-multiplied.hash.json"}
"""Defects whose smallest case is in the corpus already, for a fault of vLLM."""


def defects() -> list[Mutant]:
    """All but the equivalent ones, by name."""
    return [mutant for mutant in read_mutants(MUTANTS) if mutant.kind != "equivalent"]


def pair_of(mutant: Mutant) -> Pair:
    """The sound planner and the one with the defect."""
    return Pair(
        open_launch(BASE_ADDRESS[mutant.base], Config()), open_launch(mutant.address, Config()), mutant.base,
        case_seconds=20.0, memory=2**30,
    )  # fmt: skip


def regressions(pair: Pair, shape: Shape, stream: str, batches: int = BATCHES) -> Iterator[dict[str, Case]]:
    """The first case of each fault so far, by fingerprint, batch after batch."""
    first: dict[str, Case] = {}
    for batch in range(batches):
        cases = [draw_case(random.Random(f"{stream} {batch} {at}"), shape) for at in range(BATCH)]
        for judged in pair.collect(pair.submit(cases)):
            for finding in judged.verdict.findings:
                if finding.verdict == "regression":
                    first.setdefault(finding.fingerprint, judged.case)
        yield first


def smallest_of(mutant: Mutant) -> Case | None:
    """The minimal case of the first fault that the defect shows; None when none was met."""
    pair = pair_of(mutant)
    try:
        shape = Shape(vocabulary=vocabulary_of(*pair.start()))
        for first in regressions(pair, shape, "one", MORE_BATCHES):
            if first:
                fingerprint, case = next(iter(first.items()))
                return minimise(pair, case, fingerprint).case
        return None
    finally:
        pair.close()


def with_provenance(case: Case, shown: Iterable[Mutant]) -> Case:
    """``case``, saying which defects it shows."""
    first, *others = shown
    note = " ".join([f"Shows {first.name}: {first.summary}", *(f"And {one.name}: {one.summary}" for one in others)])
    return structs.replace(case, provenance=Provenance(
        title=f"Smallest case of {first.name}", source="tests/mutants, minimised", note=note,
    ))  # fmt: skip


def main(folder: Path) -> int:
    """Writes a case for each defect; one that shows several is named after the first."""
    folder.mkdir(parents=True, exist_ok=True)
    shown: dict[str, tuple[Case, list[Mutant]]] = {}
    missed = 0
    for mutant in (mutant for mutant in defects() if mutant.name not in ELSEWHERE):
        case = smallest_of(mutant)
        if case is None:
            missed += 1
            print(f"{mutant.name}: not met", flush=True)
            continue
        case, mutants = shown.setdefault(case_id(case), (case, []))
        mutants.append(mutant)
        write_case(folder / f"{mutants[0].name}.json", with_provenance(case, mutants))
        print(f"{mutant.name}: {len(case.layers)} layers, {case_id(case)}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
