"""Examines planners: does each start, what is it, how fast does it answer, and what to do when it does not."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.planners.address import AddressError
from fuzz.planners.fetch import FetchError
from fuzz.planners.process import Planner, PlannerError, Question, describe
from fuzz.planners.protocol import Hello
from fuzz.planners.trees import Config, open_launch
from oracles.case import FullSpec, Layer, MambaSpec, Settings, build_case
from oracles.plan import Died, Planned, Refused, TimedOut

PROBE = build_case(
    [(Layer(name=f"model.layers.{at}", spec=0),
      MambaSpec(block_size=8192, shapes=((1024,),), dtypes=("float32",)) if at % 4 else
      FullSpec(block_size=16, num_kv_heads=1, head_size=64)) for at in range(32)],
    Settings(),
)  # fmt: skip
"""A plain hybrid model of one mode, which every version can be asked."""

PROBES = 20


class Examined(Struct, frozen=True, kw_only=True):
    """One planner: its greeting and timings, or what is wrong and what to do."""

    address: str
    ok: bool
    problem: str = ""
    remedy: str = ""
    start_seconds: float = 0.0
    case_milliseconds: float = 0.0
    resident_mib: int = 0
    revision: str = ""
    hello: Hello | None = None


class Examination(Struct, frozen=True, kw_only=True):
    """All planners examined."""

    planners: tuple[Examined, ...]
    healthy: bool


def examine(addresses: Sequence[str], config: Config) -> Examination:
    """Starts the planners side by side and asks each the same plain cases."""
    started: list[tuple[str, Planner | Examined, float]] = []
    for address in addresses:
        begun = time.monotonic()
        try:
            planner = Planner(open_launch(address, config))
        except (AddressError, FetchError) as error:
            started.append((address, _failed(address, str(error), "correct the address"), begun))
            continue
        planner.start()
        started.append((address, planner, begun))
    found = tuple(one if isinstance(one, Examined) else _examine_one(one, begun) for _, one, begun in started)
    return Examination(planners=found, healthy=all(one.ok for one in found))


def _examine_one(planner: Planner, begun: float) -> Examined:
    try:
        hello = planner.hello()
        start = time.monotonic() - begun
        answers = planner.ask([Question(PROBE)] * PROBES)
    except PlannerError as error:
        return _failed(planner.address, str(error), _remedy(str(error)))
    finally:
        planner.close()
    outcome = answers[-1].outcome
    if not isinstance(outcome, Planned):
        why = outcome.first.message if isinstance(outcome, Refused) else (
            describe(outcome) if isinstance(outcome, Died | TimedOut) else str(outcome)
        )  # fmt: skip
        return _failed(planner.address, f"does not plan a plain model: {why}", "see what changed in this tree")
    return Examined(
        address=planner.address, ok=True, start_seconds=round(start, 1), revision=planner.launch.revision,
        case_milliseconds=round(1000 * sum(a.seconds for a in answers[1:]) / (PROBES - 1), 2),
        resident_mib=hello.resident_bytes >> 20, hello=hello,
    )  # fmt: skip


def _failed(address: str, problem: str, remedy: str) -> Examined:
    return Examined(address=address, ok=False, problem=problem, remedy=remedy)


def _remedy(problem: str) -> str:
    if "No module named 'vllm'" in problem:
        return "this interpreter has no vLLM: run `make setup`, or name one that has it in kvfuzz.toml"
    if "No module named 'msgspec'" in problem:
        return "the planner's interpreter needs msgspec beside vLLM: pip install msgspec there"
    if "No module named" in problem:
        return "the tree needs a package that its interpreter lacks: install the one named above"
    return "read the last lines above; the same import can be tried by hand with that interpreter"


def show_examined(report: Examination, console: Console) -> None:
    """The examination, as text."""
    for one in report.planners:
        if one.hello is None:
            console.print(f"[bold red]✗ {escape(one.address)}[/]\n  {escape(one.problem)}", soft_wrap=True)
            console.print(f"  [bold]what to do:[/] {escape(one.remedy)}", soft_wrap=True)
            continue
        hello = one.hello
        revision = f", revision {one.revision}" if one.revision else ""
        console.print(f"[bold green]✓ {escape(one.address)}[/]: vLLM {hello.version}{revision}, Python {hello.python}")
        console.print(
            f"  ready in {one.start_seconds:.1f} s, {one.case_milliseconds:.2f} ms a case of 32 layers, "
            f"{one.resident_mib} MiB resident"
        )
        console.print(
            f"  planner {hello.planner_module} ({hello.generation} generation); replication field "
            f"{hello.replication_field or 'none'}; {', '.join(hello.capabilities) or 'no later capability'}"
        )
        fields = sum(len(names) for names in hello.fields.values())
        console.print(f"  kinds: {', '.join(sorted(hello.fields))} ({fields} fields)", soft_wrap=True)
