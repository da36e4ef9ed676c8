"""One model under both planners, the reference and the laws: what a maintainer or an operator asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fuzz.harvest.figures import Figures, GroupFigures, figures_of
from fuzz.harvest.models import Modelled
from fuzz.harvest.painting import Painted, breaches_of, paint_plans, painted_words
from fuzz.known import KnownFindings
from fuzz.pair import Judged, Pair
from fuzz.replay.memory.check import TWINS
from oracles.case import case_id
from oracles.compare import FAILING, Finding, Verdict, gravity, judge


class View(Struct, frozen=True, kw_only=True):
    """The plans for one view of the settings; ``failing`` are the findings that nothing in known.toml covers.

    ``replay`` tells what came of painting the unpatched and the patched plan.
    """

    of: str
    case: str
    dcp: int
    memory: tuple[int, ...]
    block_size: int
    verdict: str
    reason: str
    replay: tuple[Painted, Painted]
    findings: tuple[Finding, ...]
    failing: tuple[str, ...]
    unpatched: Figures
    patched: Figures


class Checked(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz check --json`` prints."""

    model: str
    grade: str
    degraded: str
    vllm: str
    unpatched: str
    patched: str
    contract: str
    sentence: str
    replayed: str
    views_differ: tuple[str, ...]
    views: tuple[View, ...]

    @property
    def failed(self) -> bool:
        """Whether there is a finding that is not known."""
        return any(view.failing for view in self.views)


def check_model(pair: Pair, made: Modelled, known: KnownFindings) -> Checked:
    """Plans the model in each view of its settings and replays the plans. Raises PlannerError and Disagreement."""
    seen = [("engine core", pair.ask(made.case))]
    if made.workers is not None:
        seen.append(("workers", pair.ask(made.workers)))
    painted = paint_plans([(one.case, outcome) for _, one in seen for outcome in (one.unpatched, one.patched)])
    views = [_view(of, judged, (painted[2 * at], painted[2 * at + 1]), known) for at, (of, judged) in enumerate(seen)]
    return Checked(
        model=made.name, grade=made.grade, degraded=made.degraded, vllm=pair.unpatched.hello().version,
        unpatched=pair.unpatched.address, patched=pair.patched.address, contract=pair.contract,
        sentence=_sentence(made, views[0]),
        replayed=painted_words(_distinct(painted)), views_differ=_differences(views), views=tuple(views),
    )  # fmt: skip


def _distinct(painted: list[Painted]) -> list[Painted]:
    """Equal plans are painted once, and told once."""
    return list({id(one): one for one in painted}.values())


def _view(of: str, judged: Judged, painted: tuple[Painted, Painted], known: KnownFindings) -> View:
    case = judged.case
    verdict = _with_replay(judged, painted)
    findings = verdict.findings
    failing = [f for f in findings if f.verdict in FAILING and not known.covers(f.fingerprint, f.verdict)]
    return View(
        of=of, case=case_id(case), dcp=case.settings.dcp, memory=tuple(one.memory for one in case.settings.workers),
        block_size=case.settings.block_size, verdict=verdict.name, reason=verdict.reason, replay=painted,
        findings=findings, failing=tuple(f.fingerprint for f in failing),
        unpatched=figures_of(case, judged.unpatched), patched=figures_of(case, judged.patched),
    )  # fmt: skip


def _with_replay(judged: Judged, painted: tuple[Painted, Painted]) -> Verdict:
    """The verdict with what painting found and no law of placement had."""
    laws = judged.verdict
    told = {TWINS.get(finding.law) for finding in laws.findings}
    before, after = ([b for b in breaches_of(judged.case, one) if b.law not in told] for one in painted)
    if not before and not after:
        return laws
    more = judge(before, after, (judged.unpatched, judged.patched))
    name = max(laws.name, more.name, key=gravity)
    return Verdict(name=name, findings=(*laws.findings, *more.findings))


def _differences(views: list[View]) -> tuple[str, ...]:
    """Where the engine core's plan and that of its workers part."""
    if len(views) < 2:
        return ()
    core, workers = views
    found = [f"configured block: {core.block_size:,} tokens in the engine core, {workers.block_size:,} in the workers"]
    for side in ("unpatched", "patched"):
        first, second = getattr(core, side), getattr(workers, side)
        if first.digest != second.digest:
            found.append(f"{side}: {', '.join(_parts(first, second)) or 'the plans differ in their sizes'}")
    return tuple(found)


def _parts(first: Figures, second: Figures) -> Iterator[str]:
    for word in ("groups", "block_bytes", "blocks", "tokens", "refused"):
        if getattr(first, word) != getattr(second, word):
            yield f"{word.replace('_', ' ')} differ"


def _sentence(made: Modelled, view: View) -> str:
    """The verdict in one sentence."""
    before, after = view.unpatched, view.patched
    start = f"{made.name} ({made.grade}) at DCP {view.dcp}"
    if after.unsaid or before.unsaid:
        starts = f"inconclusive: {after.refused if after.unsaid else before.refused}"
    elif after.refused and before.digest == after.digest:
        starts = f"does not start, with the patch or without it: {after.refused}"
    elif after.refused:
        starts = f"does not start with the patch: {after.refused}"
    elif before.refused:
        starts = f"starts only with the patch; without it: {before.refused}"
    else:
        starts = "starts; " + _change(before, after)
    if view.failing:
        found = f"{len(view.failing)} finding{'s' if len(view.failing) > 1 else ''} ({view.verdict})"
    elif view.verdict == "inconclusive":
        found = f"no law is broken; the reference is silent: {view.reason}"
    else:
        found = "no finding" if view.verdict == "agree" else f"no new finding ({view.verdict})"
    return f"{start}: {starts.rstrip('.')}; {found}."


def _change(before: Figures, after: Figures) -> str:
    if before.digest == after.digest:
        return "the patch changes nothing"
    told = []
    if before.owner != after.owner:
        told.append(f"{after.owner or 'vLLM itself'} groups instead of {before.owner or 'vLLM itself'}")
    if len(before.groups) != len(after.groups):
        told.append(f"{len(before.groups)} groups become {len(after.groups)}")
    elif before.groups != after.groups:
        told.append("the groups change")
    if before.block_bytes and after.block_bytes and before.block_bytes != after.block_bytes:
        told.append(f"a block takes {before.block_bytes:,} → {after.block_bytes:,} bytes")
    if before.tokens and after.tokens and before.tokens != after.tokens:
        told.append(f"capacity {100 * (after.tokens - before.tokens) / before.tokens:+.1f} %")
    return "the patch: " + (", ".join(told) or "only the placement changes")


def show_checked(checked: Checked, console: Console) -> None:
    """The tables and the verdict, for a person."""
    if checked.degraded:
        console.print(f"[bold yellow]estimated[/], not harvested: {escape(checked.degraded)}", soft_wrap=True)
    shown: set[tuple[str, str]] = set()
    for view in checked.views:
        if len(checked.views) > 1:
            console.print(f"[bold]As the {view.of} see{'s' if view.of == 'engine core' else ''} it[/]")
        plans = view.unpatched.digest, view.patched.digest
        if plans in shown:
            console.print("  the same plans")
            continue
        shown.add(plans)
        _show_plan(f"{checked.unpatched} (vLLM {checked.vllm})", view.unpatched, console)
        if plans[0] != plans[1]:
            _show_plan(checked.patched, view.patched, console)
        for finding in view.findings:
            mark = "[red]" if finding.fingerprint in view.failing else "[dim]"
            console.print(
                f"{mark}{finding.law} {finding.fingerprint} {finding.planner} ({finding.verdict})[/]: "
                f"{escape(finding.summary)}",
                soft_wrap=True,
            )
    for line in checked.views_differ:
        console.print(f"[yellow]views differ[/] {escape(line)}", soft_wrap=True)
    console.print(f"Replay: {escape(checked.replayed)}.", soft_wrap=True)
    console.print(f"[bold]{escape(checked.sentence)}[/]", soft_wrap=True)


def _whose(group: GroupFigures) -> str:
    """Whether the layers of a group are the target's, the draft's, or both."""
    if not group.draft_layers:
        return "target"
    if group.draft_layers == group.layers:
        return "draft"
    return f"target, {group.draft_layers} of draft"


def _show_plan(title: str, figures: Figures, console: Console) -> None:
    owner = f", grouped by {figures.owner}" if figures.owner else ""
    console.print(f"[bold]{escape(title + owner)}[/]", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("groups ×\nlayers", justify="right", no_wrap=True)
    with_draft = any(group.draft_layers for group in figures.groups)
    for name in (*(("of",) if with_draft else ()), "kind", "mode"):
        table.add_column(name)
    for name in ("block\n(tokens)", "span\n(tokens)", "page\n(bytes)", "padding"):
        table.add_column(name, justify="right", no_wrap=True)
    for group, equal in groupby(figures.groups):  # a model has tens of groups, and few that differ
        of = _whose(group)
        table.add_row(
            f"{len(list(equal)):,} × {group.layers:,}", *((of,) if with_draft else ()),
            group.kind + (" (uniform)" if group.wrapper else ""), group.mode,
            f"{group.block_size:,}", f"{group.span_tokens:,}", f"{group.page_bytes:,}",
            "–" if group.padding_percent is None else f"{group.padding_percent:.1f} %",
            style="cyan" if of == "draft" else "",
        )  # fmt: skip
    if figures.groups:
        console.print(table)
    if figures.blocks is not None and figures.block_bytes is not None:
        used = figures.blocks * figures.block_bytes
        console.print(
            f"  {figures.blocks:,} blocks of {figures.block_bytes:,} bytes: {used / 2**30:.2f} GiB a worker, "
            "of --available-gib"
        )
    if figures.tokens is not None:
        console.print(
            f"  {figures.tokens:,} tokens: {figures.concurrency:.2f} requests of {figures.model_len:,} tokens at once"
        )
    if figures.refused:
        mark = "[yellow]inconclusive[/]:" if figures.unsaid else "[red]refused[/] at"
        console.print(f"  {mark} {escape(figures.refused)}", soft_wrap=True)
