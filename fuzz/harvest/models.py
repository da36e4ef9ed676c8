"""From a configuration to a case: a harvest where vLLM's classes can be built, an estimate said to be one elsewhere."""

from __future__ import annotations

from msgspec import Struct, structs

from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.estimate import estimate
from fuzz.harvest.process import Harvester
from fuzz.harvest.requests import Grade, Reply, Request, grade_of
from fuzz.harvest.samples import BY_HAND, MEMORY, HarvestError, case_from_harvest, workers_case
from oracles.case import Case

DECISIONS = frozenset({"ValueError", "NotImplementedError", "ValidationError", "KeyError"})
"""Errors by which vLLM declines a configuration. Others, while building, may be owed to what is stood in for."""


class Modelled(Struct, frozen=True, kw_only=True):
    """A model as a case.

    ``case`` has the settings that the engine core plans with, ``workers`` those of its workers where they differ.
    ``degraded`` says why the case is worth less than a harvest; empty when it is one. ``owns_grouping`` tells
    whether the model's class groups its layers itself (0.33), in the tree that was harvested.
    """

    name: str
    grade: Grade
    case: Case
    workers: Case | None = None
    version: str = ""
    architecture: str = ""
    owns_grouping: bool = False
    degraded: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    peak_bytes: int = 0


def model_case(harvester: Harvester, request: Request, *, memory: int = MEMORY, by_hand: bool = False) -> Modelled:
    """The case of one model with ``memory`` bytes on each worker; ``by_hand`` when kvfuzz wrote its configuration.

    Raises:
        ConfigError: vLLM refuses it, a key is missing, or it can be neither harvested nor estimated.
        PlannerError: the harvesting process is broken.
    """
    reply = harvester.harvest(request)
    if reply.harvest is None:
        return _instead(request, reply, memory)
    grade = grade_of(reply.harvest)
    harvest = {**reply.harvest, "grade": grade, "note": BY_HAND if by_hand else ""}
    try:
        return Modelled(
            name=request.name, grade=grade, case=case_from_harvest(harvest, memory=memory),
            workers=workers_case(harvest, memory=memory), version=harvester.version,
            architecture=str(harvest["architecture"]), owns_grouping=harvest["owns_grouping"],
            notes=tuple(harvest["faked"]), seconds=reply.seconds,
            peak_bytes=reply.peak_bytes,
        )  # fmt: skip
    except HarvestError as error:
        raise ConfigError(f"{request.name}: harvested, but no case can say it: {error}") from None


def _instead(request: Request, reply: Reply, memory: int) -> Modelled:
    refusal = reply.refusal
    reason = reply.reason if refusal is None else refusal.sentence()
    if refusal is not None and (refusal.stage == "config" or refusal.missing is not None or refusal.type in DECISIONS):
        raise ConfigError(f"{request.name}: {reason}")
    reason = reason.replace("vLLM refuses it", "building it here fails")
    try:
        case = estimate(request, memory=memory)
    except ConfigError as error:
        raise ConfigError(f"{request.name}: cannot be harvested ({reason}), nor estimated: {error}") from None
    names = [str(name) for name in request.config.get("architectures") or ()]
    if names:  # its class may own its grouping: then that of the class, or nothing, is to be told
        settings = structs.replace(case.settings, architecture=names[0])
        case = structs.replace(case, settings=settings)
    return Modelled(
        name=request.name, grade="estimated", case=case, degraded=reason,
        architecture=", ".join(names), seconds=reply.seconds,
        peak_bytes=reply.peak_bytes,
    )  # fmt: skip
