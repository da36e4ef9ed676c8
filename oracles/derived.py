"""Cases derived from a case, for laws that need a second answer: how a plan changes when one thing does.

The campaign asks the planner for each and puts the outcomes into ``Evidence.derived`` under the names below; a law
whose outcome is absent does not apply. Units as in ``oracles.case``.
"""

from __future__ import annotations

import string
from collections.abc import Callable

from msgspec import structs

from oracles.case import Case

RENAMED = "renamed"
PERMUTED = "permuted"
WIDER_DCP = "wider_dcp"
MORE_MEMORY = "more_memory"

LARGEST_DCP = 64
LARGEST_MEMORY = 2**50
"""What a case can name at most: ranks, bytes."""

_MIRROR = str.maketrans(string.ascii_letters, string.ascii_lowercase[::-1] + string.ascii_uppercase[::-1])


def new_name(name: str) -> str:
    """The name a layer gets in ``renamed``: letters mirrored (a for z), so that their order turns round; digits
    stay, because vLLM reads a layer's index from them.
    """
    return name.translate(_MIRROR)


def renamed(case: Case) -> Case:
    """``case`` with other layer names."""
    layers = tuple(structs.replace(layer, name=new_name(layer.name)) for layer in case.layers)
    return structs.replace(case, layers=layers)


def permuted(case: Case) -> Case:
    """``case`` with the names of interchangeable layers (same spec, stage and owner) in reverse."""
    alike: dict[tuple[int, int, bool], list[str]] = {}
    for layer in case.layers:
        alike.setdefault((layer.spec, layer.stage, layer.draft), []).append(layer.name)
    return structs.replace(case, layers=tuple(
        structs.replace(layer, name=alike[layer.spec, layer.stage, layer.draft].pop()) for layer in case.layers
    ))  # fmt: skip


def with_dcp(case: Case, ranks: int) -> Case:
    """``case`` under another DCP size."""
    return structs.replace(case, settings=structs.replace(case.settings, dcp=ranks))


def wider_dcp(case: Case) -> Case:
    """``case`` with twice the DCP ranks."""
    return with_dcp(case, min(2 * case.settings.dcp, LARGEST_DCP))


def with_more_memory(case: Case) -> Case:
    """``case`` with twice the memory and a bit on every worker, so that block counts become odd ones too."""
    workers = tuple(
        structs.replace(worker, memory=min(2 * worker.memory + 4099, LARGEST_MEMORY))
        for worker in case.settings.workers
    )
    return structs.replace(case, settings=structs.replace(case.settings, workers=workers))


def with_a_layer_more(case: Case) -> Case:
    """``case`` with its last layer once more, under a name of its own. Not for a case without layers."""
    last = case.layers[-1]
    names = {layer.name for layer in case.layers}
    name = next(f"more.layers.{at}" for at in range(len(names) + 1) if f"more.layers.{at}" not in names)
    return structs.replace(case, layers=(*case.layers, structs.replace(last, name=name)))


DERIVED: dict[str, Callable[[Case], Case]] = {
    RENAMED: renamed, PERMUTED: permuted, WIDER_DCP: wider_dcp, MORE_MEMORY: with_more_memory,
}  # fmt: skip
"""What a campaign may ask beside the case itself, by name."""

OF_ANY_OWNER = frozenset({MORE_MEMORY})
"""Forms that still say something of a plan that vLLM's rules did not make (0.33). A model's own class knows its layers
by name and number, and may group by the ranks too; that more memory serves more holds for every plan.
"""
