"""Plans in a terminal, side by side, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fuzz.planners.protocol import Hello
from oracles.case import Case, case_id, kind_of, mode_of
from oracles.geometry import page_bytes
from oracles.plan import STAGES, Died, Group, Outcome, Plan, Refusal, Refused, TimedOut, Unsupported, owner_of, plan_of
from oracles.quality import Assessment, assess


class Planned(Struct, frozen=True, kw_only=True):
    """One planner's outcome for one case, with what it is."""

    address: str
    revision: str
    hello: Hello
    outcome: Outcome


def mode_of_group(plan: Plan, group: Group, case: Case) -> str:
    """The replication mode of a group's layers: ``sharded``, ``replicated``, ``recurrent``, or several."""
    by_name = {layer.name: case.specs[layer.spec] for layer in case.layers}
    modes = {mode_of(by_name[name]) for name in group.layers if name in by_name}
    del plan
    return "+".join(sorted(modes)) or "?"


def stage_outcomes(outcome: Outcome) -> dict[str, str]:
    """For each stage: ``ok``, ``refused``, or why there is nothing."""
    if isinstance(outcome, Died):
        return dict.fromkeys(STAGES, "died")
    if isinstance(outcome, TimedOut):
        return dict.fromkeys(STAGES, "timed out")
    if isinstance(outcome, Unsupported):
        return dict.fromkeys(STAGES, "unsupported")
    plan = plan_of(outcome)
    assert plan is not None
    held = {"group": plan.groups, "place": plan.placement, "size": plan.sizes, "capacity": plan.capacity}
    refused = {r.stage for r in outcome.refusals} if isinstance(outcome, Refused) else set()
    return {
        stage: "refused" if stage in refused else "ok" if held[stage] is not None else "not reached" for stage in STAGES
    }


def as_json(case: Case, planned: Sequence[Planned]) -> dict[str, Any]:
    """What ``kvfuzz plan --json`` prints."""
    return {"case": case_id(case), "planners": [_one_json(case, one) for one in planned]}


def _one_json(case: Case, one: Planned) -> dict[str, Any]:
    outcome, plan = one.outcome, plan_of(one.outcome)
    placement = plan.placement if plan is not None else None
    stages = {
        stage: {"outcome": word, **_refusal_json(outcome, stage)} for stage, word in stage_outcomes(outcome).items()
    }
    if isinstance(outcome, Refused) and any(r.stage == "input" for r in outcome.refusals):
        stages["input"] = {"outcome": "refused", **_refusal_json(outcome, "input")}
    return {
        "address": one.address,
        "version": one.hello.version,
        "revision": one.revision,
        "outcome": type(outcome).__struct_config__.tag,
        "problem": _problem(outcome),
        "owner": owner_of(outcome),
        "stages": stages,
        "groups": [
            {
                "layers": list(g.layers), "kind": g.kind, "block_size": g.block_size,
                "span_tokens": g.span_tokens, "page_bytes": g.page_bytes,
                "mode": mode_of_group(plan, g, case), "draft": g.draft, "uniform_wrapper": g.is_wrapper,
            }
            for g in plan.groups
        ] if plan is not None and plan.groups is not None else None,
        "pool": [
            {
                "num_blocks": worker.num_blocks,
                "bytes": max((r.size for r in worker.records), default=0),
                "records": [
                    {"layers": list(r.layers), "size": r.size, "offset": r.offset, "layer_stride": r.layer_stride,
                     "block_stride": r.block_stride, "aliased": r.aliased}
                    for r in worker.records
                ],
            }
            for worker in placement
        ] if placement is not None else None,
        "sizes": plan.sizes if plan is not None else None,
        "capacity": plan.capacity if plan is not None else None,
        "quality": assess(case, plan) if plan is not None else None,
    }  # fmt: skip


def _refusal_json(outcome: Outcome, stage: str) -> dict[str, str]:
    found = next((r for r in outcome.refusals if r.stage == stage), None) if isinstance(outcome, Refused) else None
    return {"type": found.type, "message": found.message} if found is not None else {}


def _problem(outcome: Outcome) -> str:
    if isinstance(outcome, Died):
        return outcome.cause
    if isinstance(outcome, TimedOut):
        return f"no answer within {outcome.seconds:g} s"
    if isinstance(outcome, Unsupported):
        return f"{outcome.field}: {outcome.reason}"
    return ""


def show_case(case: Case, console: Console) -> None:
    """The layers by spec, and the settings that are not the default."""
    table = Table(
        title=f"Case {case_id(case)}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for column, justify in (
        ("n", "right"),
        ("layers", "left"),
        ("kind", "left"),
        ("block", "right"),
        ("page", "right"),
        ("mode", "left"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for at, spec in enumerate(case.specs):
        mine = [layer for layer in case.layers if layer.spec == at]
        draft = " (draft)" if any(layer.draft for layer in mine) else ""
        table.add_row(
            str(len(mine)),
            escape(_names(tuple(layer.name for layer in mine))) + draft, kind_of(spec), f"{spec.block_size:,}",
            f"{page_bytes(spec):,}", mode_of(spec),
        )  # fmt: skip
    console.print(table)
    settings = case.settings
    console.print(
        f"  dcp {settings.dcp} · tp {settings.tp} · layout {settings.layout} ({settings.layout_origin}) · "
        f"length {settings.model_len:,} · memory "
        + ", ".join(f"{w.memory:,}" for w in settings.workers)
        + ("" if settings.hybrid_manager else " · hybrid manager off")
    )


def show_plans(case: Case, planned: Sequence[Planned], console: Console) -> None:
    """All planners' answers, one column each."""
    grid = Table.grid(padding=(0, 2), expand=False)
    wide = console.width >= 110 * len(planned) or len(planned) == 1
    cells = [_plan_cell(case, one) for one in planned]
    if wide or (len(planned) == 2 and console.width >= 150):
        for _ in planned:
            grid.add_column()
        grid.add_row(*cells)
        console.print(grid)
        return
    for cell in cells:
        console.print(cell)


def _plan_cell(case: Case, one: Planned) -> Table:
    outer = Table.grid()
    outer.add_column()
    outer.add_row(f"[bold]{escape(one.address)}[/] (vLLM {escape(one.hello.version)})")
    outcome, plan = one.outcome, plan_of(one.outcome)
    if plan is not None and plan.owner:
        outer.add_row(f"  grouped by {escape(plan.owner)}")
    if plan is not None and plan.groups is not None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name, justify in (
            ("#", "right"), ("layers", "left"), ("kind", "left"), ("block", "right"), ("span", "right"),
            ("page", "right"), ("mode", "left"),
        ):  # fmt: skip
            table.add_column(name, justify=justify, no_wrap=name != "layers", overflow="fold")  # type: ignore[arg-type]
        for number, g in enumerate(plan.groups):
            table.add_row(
                str(number), escape(_names(g.layers)), g.kind + (" (uniform)" if g.is_wrapper else ""),
                f"{g.block_size:,}", f"{g.span_tokens:,}", f"{g.page_bytes:,}",
                mode_of_group(plan, g, case) + (" (draft)" if g.draft else ""),
            )  # fmt: skip
        outer.add_row(table)
    if plan is not None and plan.placement is not None:
        for number, worker in enumerate(plan.placement):
            size = max((r.size for r in worker.records), default=0)
            outer.add_row(
                f"  pool {number}: {worker.num_blocks:,} blocks, {size:,} bytes in {len(worker.records)} records"
            )
    if plan is not None and plan.sizes is not None:
        outer.add_row(
            f"  sizes: scheduler {plan.sizes.scheduler_block:,}, hash {plan.sizes.hash_block:,}, "
            f"table widths {', '.join('?' if w is None else f'{w:,}' for w in plan.sizes.widths)}"
        )
    if plan is not None and plan.capacity is not None:
        outer.add_row(
            f"  capacity: {plan.capacity.tokens:,} tokens, {plan.capacity.concurrency:.2f} requests of "
            f"{plan.capacity.model_len:,}"
        )
    quality = assess(case, plan) if plan is not None else None
    if quality is not None:
        outer.add_row(_quality_words(quality))
    if isinstance(outcome, Refused):
        for refusal in outcome.refusals:
            outer.add_row(_refusal_words(refusal))
    elif _problem(outcome):
        outer.add_row(f"  [red]{type(outcome).__struct_config__.tag}[/]: {escape(_problem(outcome))}")
    return outer


def _quality_words(found: Assessment) -> str:
    text = f"  quality: {found.plan.request_bytes:,} bytes a request"
    if found.optimum is None or found.request_ratio is None:
        return text
    groups, least = found.optimum.front[-1]
    return f"{text}, {found.request_ratio:.2f} × the least ({least:,} in {groups} groups)"


def _refusal_words(refusal: Refusal) -> str:
    first = refusal.message.strip().splitlines()[0][:300] if refusal.message.strip() else "(no message)"
    where = f" in {refusal.frames[-1]}" if refusal.frames else ""
    return f"  [red]refused at {refusal.stage}[/]: {escape(refusal.type)}: {escape(first)}[dim]{escape(where)}[/]"


def _names(names: tuple[str, ...]) -> str:
    """The first and the last of some layers."""
    if len(names) <= 2:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]}"
