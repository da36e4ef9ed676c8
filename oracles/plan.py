"""A *plan* is a planner's answer to a case; an *outcome* is what came back, plan or not.

A plan has four stages, each of which a planner may refuse by itself: the groups, their placement in each
worker's pool, the block sizes, and the capacity claimed. Nothing here is computed: it is what a planner said,
in the vocabulary of cases. Units: bytes, blocks and tokens as the field names say.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from oracles.case import Spec

Stage = Literal["input", "group", "place", "size", "capacity"]
STAGES: tuple[Stage, ...] = ("group", "place", "size", "capacity")


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Layers that share a block table.

    A plain group has one merged ``spec`` (index into the plan's table). A uniform wrapper keeps a spec per
    member in ``members``, in the order of ``member_layers``. ``block_size`` (tokens), ``page_bytes`` (one
    block of the group: a wrapper's is the sum of its members') and ``sharded`` are the group's own claims.
    ``extra`` holds what the vocabulary has no name for, so that nothing is lost in silence.
    """

    layers: tuple[str, ...]
    block_size: int
    page_bytes: int
    span_tokens: int
    kind: str
    sharded: bool | None = None
    draft: bool = False
    spec: int | None = None
    members: tuple[int, ...] = ()
    member_layers: tuple[str, ...] = ()
    extra: dict[str, str] = {}

    @property
    def is_wrapper(self) -> bool:
        """Whether the group keeps one spec per member."""
        return self.spec is None


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where some layers lie in a worker's pool, in bytes.

    Page of layer index l, block b starts at ``offset + l·layer_stride + b·block_stride``. ``aliased`` records
    (0.26 to 0.28) put all their layers over the same bytes instead.
    """

    size: int
    layers: tuple[str, ...]
    block_stride: int
    layer_stride: int = 0
    offset: int = 0
    aliased: bool = False


class Placement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One worker's pool: its block count, its records, and the layers of each group that lie here."""

    num_blocks: int
    records: tuple[Record, ...]
    group_layers: tuple[tuple[str, ...], ...]
    group_drafts: tuple[bool, ...] = ()


class Sizes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Block sizes in tokens, and block-table widths in columns at the model length.

    ``widths`` is each group's own answer (None: it raised), ``member_widths`` the answers of its members.
    """

    configured_block: int
    scheduler_block: int
    hash_block: int
    widths: tuple[int | None, ...] = ()
    member_widths: tuple[tuple[int, ...], ...] = ()


class Capacity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the planner claims: tokens, requests of the model length at once, blocks per request and group."""

    tokens: int
    concurrency: float
    model_len: int
    request_blocks: tuple[int, ...] = ()


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a planner said; a stage it refused is None.

    ``owner`` names the code that grouped in place of vLLM's own rules: a model class or a builder (0.33).
    """

    specs: tuple[Spec, ...] = ()
    groups: tuple[Group, ...] | None = None
    placement: tuple[Placement, ...] | None = None
    sizes: Sizes | None = None
    capacity: Capacity | None = None
    owner: str = ""


class Refusal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An exception of the planner: its type, its message, and its frames inside vLLM, outermost first."""

    stage: Stage
    type: str
    message: str
    frames: tuple[str, ...] = ()


class Planned(Struct, frozen=True, kw_only=True, tag="planned"):
    """Every stage answered."""

    plan: Plan


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """One stage or more raised; ``plan`` holds the others."""

    refusals: tuple[Refusal, ...]
    plan: Plan

    @property
    def first(self) -> Refusal:
        """The earliest refusal."""
        return self.refusals[0]


class Died(Struct, frozen=True, kw_only=True, tag="died", omit_defaults=True):
    """The process ended or could not go on: a signal's name, ``out of memory``, ``exit N``, ``bad reply``."""

    cause: str
    stderr_tail: str = ""


class TimedOut(Struct, frozen=True, kw_only=True, tag="timed_out", omit_defaults=True):
    """No answer within the deadline; the process was killed."""

    seconds: float
    stderr_tail: str = ""


class Unsupported(Struct, frozen=True, kw_only=True, tag="unsupported"):
    """The tree cannot express this field of the case."""

    field: str
    reason: str = ""


Outcome = Planned | Refused | Died | TimedOut | Unsupported


def owner_of(outcome: Outcome | None) -> str:
    """What grouped in place of vLLM's own rules; empty where nothing did."""
    plan = plan_of(outcome) if outcome is not None else None
    return plan.owner if plan is not None else ""


def plan_of(outcome: Outcome) -> Plan | None:
    """The plan of an outcome, whole or in part."""
    return outcome.plan if isinstance(outcome, Planned | Refused) else None


def refusal_at(outcome: Outcome, stage: Stage) -> Refusal | None:
    """The refusal of one stage."""
    if not isinstance(outcome, Refused):
        return None
    return next((r for r in outcome.refusals if r.stage == stage), None)
