"""What a number of generated cases reaches: the computation behind ``kvfuzz stats``.

*Distributions* come from the cases alone: kinds, modes, page relations, layouts, pipeline shapes, the branch that
the rough plan expects. *Reach* comes from the planners: how many cases each accepts as input, at which stage it refuses
others, and which branches of its source planning takes. *Quality* compares its plans with the best groupings there are.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fuzz.planners.arcs import Branch, branches_in, planner_files
from fuzz.planners.process import Planner, Question
from fuzz.planners.protocol import Answer, Hello
from fuzz.ratings import Anomalies, Objective, find_anomalies, rate_plans, show_ratings
from fuzz.strategies import Shape, draw_case
from fuzz.strategies.claims import claimed, missing
from fuzz.strategies.features import Features, Pair, features
from oracles.case import MAX_LAYERS, Case, MambaSpec, case_id
from oracles.derived import with_a_layer_more
from oracles.plan import Died, Outcome, Refused, TimedOut, Unsupported

BATCH = 50
"""Cases in flight to one planner: enough to hide the pipe's latency, few enough to show progress."""

SHOWN_REFUSALS = 12
SHOWN_BRANCHES = 40
"""Rows of the tables in a terminal; the JSON has them all."""


ONE_MORE_EVERY = 4
"""One case in four is asked again with a layer more: anomalies are rare, and a sample shows them."""


class Refusals(Struct, frozen=True):
    """Refusals alike: stage, exception type, message with its numbers left out, how many, and one case's id."""

    stage: str
    type: str
    message: str
    count: int
    example: str


class Reach(Struct, frozen=True, kw_only=True):
    """What the cases reach in one planner.

    ``accepted`` counts the cases taken as valid input: not unsupported, and no refusal at the stage ``input``.
    ``outcomes`` counts "planned", "refused at STAGE" (the earliest), "died" and "timed out"; ``unsupported``
    counts by field. ``branches`` is (taken, all); ``unreached`` lists the others. ``seconds`` is CPU time
    inside vLLM, traced if branches were asked for. ``quality`` and ``anomalies`` are metrics: never a fault.
    """

    address: str
    version: str
    cases: int
    accepted: int
    outcomes: dict[str, int]
    unsupported: dict[str, int]
    refusals: tuple[Refusals, ...]
    branches: tuple[int, int] | None
    unreached: tuple[Branch, ...]
    seconds: float
    quality: tuple[Objective, ...]
    anomalies: Anomalies


class Stats(Struct, frozen=True, kw_only=True):
    """Distributions over ``cases`` cases of ``seed``, and the reach in each planner.

    ``layers`` is their total; ``draw_seconds`` the CPU time of generation alone. ``distinct`` counts feature
    tuples; ``claimed`` and ``missing`` are the pairs of features claimed, and those of them not reached.
    """

    cases: int
    seed: int
    layers: int
    draw_seconds: float
    distinct: int
    claimed: int
    missing: tuple[Pair, ...]
    distributions: dict[str, dict[str, int]]
    planners: tuple[Reach, ...]


def run_stats(
    cases: int,
    seed: int,
    planners: Sequence[Planner] = (),
    *,
    shape: Shape | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Stats:
    """Draws ``cases`` cases of ``seed`` and asks each planner for their outcomes and branches.

    ``progress`` is told (address, cases done) after each batch. Raises PlannerError when a planner cannot start.
    """
    started = time.thread_time()
    drawn = draw_cases(cases, seed, shape)
    draw_seconds = time.thread_time() - started
    seen = [features(case) for case in drawn]
    return Stats(
        cases=cases,
        seed=seed,
        layers=sum(len(case.layers) for case in drawn),
        draw_seconds=draw_seconds,
        distinct=len(set(seen)),
        claimed=len(claimed()),
        missing=missing(seen),
        distributions=distributions(drawn, seen),
        planners=tuple(measure_reach(planner, drawn, progress) for planner in planners),
    )


def draw_cases(cases: int, seed: int, shape: Shape | None = None) -> list[Case]:
    """The first ``cases`` cases of ``seed``."""
    generator = random.Random(seed)
    wanted = shape or Shape()
    return [draw_case(generator, wanted) for _ in range(cases)]


def distributions(drawn: Sequence[Case], seen: Sequence[Features]) -> dict[str, dict[str, int]]:
    """For each dimension, how many cases show each value, most frequent first."""
    rows: dict[str, Iterable[str]] = {
        "target kinds": (kind for one in seen for kind in one.target),
        "draft kinds": (kind for one in seen for kind in one.draft or ("none",)),
        "modes": (one.modes for one in seen),
        "pages": (one.pages for one in seen),
        "layout": (one.layout + (", forced" if one.forced else "") for one in seen),
        "pipeline": (one.pipeline for one in seen),
        "expected branch": (one.branch for one in seen),
        "dcp": (str(case.settings.dcp) for case in drawn),
        "layers": (_bracket(len(case.layers)) for case in drawn),
        "specs": (str(len(case.specs)) for case in drawn),
        "speculative": (s.method if (s := case.settings.speculative) else "none" for case in drawn),
        "Mamba mode": (case.settings.mamba_mode for case in drawn if _is_recurrent(case)),
    }
    return {name: _most_frequent(values) for name, values in rows.items()}


def _most_frequent(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items(), key=lambda row: (-row[1], row[0])))


def _is_recurrent(case: Case) -> bool:
    return any(isinstance(spec, MambaSpec) for spec in case.specs)


def _bracket(count: int) -> str:
    for low, high in ((0, 0), (1, 4), (5, 12), (13, 29), (30, 60)):
        if count <= high:
            return str(low) if low == high else f"{low} to {high}"
    return "over 60"


def measure_reach(planner: Planner, drawn: Sequence[Case], progress: Callable[[str, int], None] | None = None) -> Reach:
    """What ``drawn`` reaches in ``planner``. Raises PlannerError when it cannot start."""
    hello = planner.hello()
    answers: list[Answer] = []
    larger: list[Outcome | None] = []
    for first in range(0, len(drawn), BATCH):
        batch = drawn[first : first + BATCH]
        asked = [at for at, case in enumerate(batch) if at % ONE_MORE_EVERY == 0 and 0 < len(case.layers) < MAX_LAYERS]
        found = planner.ask(
            [Question(case, depth="branches") for case in batch]
            + [Question(with_a_layer_more(batch[at])) for at in asked]
        )
        answers += found[: len(batch)]
        again = dict(zip(asked, (answer.outcome for answer in found[len(batch) :]), strict=True))
        larger += [again.get(at) for at in range(len(batch))]
        if progress is not None:
            progress(planner.address, len(answers))
    return read_reach(planner.address, hello, drawn, answers, larger)


def read_reach(
    address: str, hello: Hello, drawn: Sequence[Case], answers: Sequence[Answer], larger: Sequence[Outcome | None]
) -> Reach:
    """Counts outcomes, refusals and branches, and rates the plans.

    ``larger`` has the outcomes of the cases with a layer more, None where that was not asked.
    """
    taken = {key for answer in answers for key in answer.branches}
    every = branches_in(planner_files(hello))
    outcomes = [answer.outcome for answer in answers]
    alike: dict[tuple[str, str, str], list[Case]] = {}
    for case, outcome in zip(drawn, outcomes, strict=True):
        if isinstance(outcome, Refused):
            first = outcome.first
            alike.setdefault((first.stage, first.type, _plain(first.message)), []).append(case)
    refusals = [Refusals(*key, len(found), case_id(found[0])) for key, found in alike.items()]
    return Reach(
        address=address,
        version=hello.version,
        cases=len(drawn),
        accepted=sum(map(is_accepted, outcomes)),
        outcomes=dict(Counter(map(_name, outcomes)).most_common()),
        unsupported=dict(Counter(o.field for o in outcomes if isinstance(o, Unsupported)).most_common()),
        refusals=tuple(sorted(refusals, key=lambda row: (-row.count, row.stage, row.type, row.message))),
        branches=(sum(branch.key in taken for branch in every), len(every)),
        unreached=tuple(branch for branch in every if branch.key not in taken),
        seconds=sum(answer.seconds for answer in answers),
        quality=rate_plans(drawn, outcomes),
        anomalies=find_anomalies(drawn, outcomes, larger),
    )


def is_accepted(outcome: Outcome) -> bool:
    """Whether the planner took the case as valid input, whatever it made of it."""
    if isinstance(outcome, Unsupported):
        return False
    return not (isinstance(outcome, Refused) and outcome.first.stage == "input")


def _name(outcome: Outcome) -> str:
    if isinstance(outcome, Refused):
        return f"refused at {outcome.first.stage}"
    if isinstance(outcome, Died):
        return "died"
    if isinstance(outcome, TimedOut):
        return "timed out"
    return "unsupported" if isinstance(outcome, Unsupported) else "planned"


def _plain(message: str) -> str:
    """A message without what varies: numbers, lists of them, and layer names."""
    text = re.sub(r"(model|draft)\.layers\.\d+", "LAYER", message.splitlines()[0] if message else "")
    return re.sub(r"\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*", "#", text)[:160]


def render_stats(stats: Stats, console: Console) -> None:
    """Prints ``stats`` as tables a person can read."""
    rate = stats.cases / stats.draw_seconds if stats.draw_seconds else 0.0
    console.print(
        f"[bold]{stats.cases:,} cases[/] of seed {stats.seed} · "
        f"{stats.layers / max(1, stats.cases):.1f} layers on average · {stats.distinct:,} feature tuples · "
        f"{stats.claimed - len(stats.missing)} of {stats.claimed} claimed pairs · drawn at {rate:,.0f} cases/s"
    )
    for dimension, one, other in stats.missing:
        console.print(f"  [red]not reached[/] {dimension}: {one}, {other}")
    table = Table("dimension", "value", "cases", "share", box=box.SIMPLE, pad_edge=False)
    for name, values in stats.distributions.items():
        for at, (value, count) in enumerate(values.items()):
            table.add_row(name if at == 0 else "", value, f"{count:,}", f"{count / stats.cases:.1%}")
        table.add_section()
    console.print(table)
    for reach in stats.planners:
        _render_reach(reach, console)


def _render_reach(reach: Reach, console: Console) -> None:
    share = reach.accepted / max(1, reach.cases)
    console.print(f"[bold]{escape(reach.address)}[/] (vLLM {escape(reach.version)}): {share:.2%} accepted as input")
    table = Table("outcome", "cases", box=box.SIMPLE, pad_edge=False)
    for name, count in reach.outcomes.items():
        table.add_row(name, f"{count:,}")
    for field, count in reach.unsupported.items():
        table.add_row(f"  unsupported: {escape(field)}", f"{count:,}")
    console.print(table)
    if reach.refusals:
        table = Table("refused at", "type", "message", "cases", "example", box=box.SIMPLE, pad_edge=False)
        for row in reach.refusals[:SHOWN_REFUSALS]:
            table.add_row(row.stage, row.type, escape(row.message), f"{row.count:,}", row.example)
        console.print(table)
        if len(reach.refusals) > SHOWN_REFUSALS:
            console.print(f"  and {len(reach.refusals) - SHOWN_REFUSALS} kinds of refusal more; see --json")
    show_ratings(reach.quality, reach.anomalies, console)
    if reach.branches is not None:
        taken, every = reach.branches
        console.print(f"{taken} of {every} branches of its planning functions taken ({taken / max(1, every):.1%})")
        for branch in reach.unreached[:SHOWN_BRANCHES]:
            console.print(f"  [dim]{branch.function}:{branch.line}[/] {branch.way} {escape(branch.text)}")
