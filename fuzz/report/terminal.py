"""A run as seen in a terminal; in a CI log, a line now and then instead of a live display."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fuzz.campaign import (
    CanaryCaught,
    Event,
    Finished,
    Found,
    LaneLost,
    Minimised,
    Minimising,
    Progressed,
    Report,
    Resumed,
    Started,
    Witness,
)
from fuzz.report.summary import WORDS, Summary, conclusion, law_text, reason_known, summary_of

LOG_EVERY_SECONDS = 10.0
"""Where there is no terminal to draw on."""

KNOWN_SHOWN = 8
"""Known faults with a line of their own: enough to see that they are looked at, few enough to read past."""

SHOWN = 12
"""Findings told at length in each section; the others take a line."""

COLOURS = {
    "agree": "green", "fixed": "cyan", "regression": "bold red", "unfixed": "yellow",
    "dispute": "magenta", "inconclusive": "dim",
}  # fmt: skip


def follow(events: Iterable[Event], console: Console, seconds: float | None, cases: int | None) -> Report:
    """Shows events as they come and returns the final report."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            return _consume(events, console, seconds, cases, live)
    return _consume(events, console, seconds, cases, None)


def _consume(
    events: Iterable[Event], console: Console, seconds: float | None, cases: int | None, live: Live | None
) -> Report:
    last = time.monotonic()
    report: Report | None = None
    for event in events:
        if isinstance(event, Started):
            for planner in event.planners:
                revision = f" ({planner.revision})" if planner.revision else ""
                console.print(
                    f"  [bold]{planner.role:<9}[/] {escape(planner.address)}: vLLM {escape(planner.version)}"
                    f"{escape(revision)}, ready in {planner.start_seconds:.1f} s"
                    f"{f'; {planner.rules}' if planner.rules else ''}",
                    soft_wrap=True,
                )
            console.print(
                f"  contract  [bold]{event.contract}[/], seed {event.seed}, {event.jobs} pair(s) of planners, "
                f"run {escape(event.run)}"
            )
        elif isinstance(event, Resumed):
            console.print(
                f"  going on after {event.cases:,} cases and {event.findings} findings; {event.in_flight} cases were "
                "in flight and are asked again"
            )
        elif isinstance(event, CanaryCaught):
            console.print(f"  [dim]canary {escape(event.name)}: caught by {event.law} within {event.cases} cases[/]")
        elif isinstance(event, LaneLost):
            console.print(
                f"  [yellow]pair {event.lane} was lost ({escape(event.reason)}); its {event.cases} cases are asked "
                "again[/]"
            )
        elif isinstance(event, Minimising):
            console.print(
                f"  minimising {event.findings} findings, up to {event.seconds:.0f} s each "
                "(--no-minimise leaves that out) …"
            )
        elif isinstance(event, Minimised):
            console.print(
                f"  minimised {event.witness.fingerprint}: {event.layers_before} → {event.witness.layers} layers, "
                f"{event.witness.id}"
            )
        elif isinstance(event, Found):
            if not event.witness.known:  # known ones are told at the end
                _show_found(event.witness, console)
        elif isinstance(event, Progressed):
            line = _progress_line(event, seconds, cases)
            if live is not None:
                live.update(line)
            elif time.monotonic() - last >= LOG_EVERY_SECONDS:
                last = time.monotonic()
                console.print(line)
        elif isinstance(event, Finished):
            report = event.report
    if report is None:
        raise RuntimeError("the campaign ended without a report")
    return report


def _progress_line(event: Progressed, seconds: float | None, cases: int | None) -> Text:
    rate = event.cases / event.seconds if event.seconds else 0.0
    left = f"{max(0.0, seconds - event.seconds):3.0f} s left" if seconds is not None else (
        f"{event.cases}/{cases} cases" if cases is not None else f"{event.seconds:.0f} s"
    )  # fmt: skip
    text = Text(f"  {left} · {event.cases:,} cases · {rate:.0f}/s · ")
    for name, count in event.verdicts.items():
        if count:
            text.append(f"{count:,} {WORDS[name]}", style=COLOURS[name]).append(" · ")
    return text.append(
        f"{event.distinct} distinct findings · {event.pairs} feature pairs, {event.branches} branches reached, "
        f"{event.novelty:.3f} new pairs a case"
    )


def _show_found(witness: Witness, console: Console) -> None:
    colour = COLOURS[witness.verdict]
    console.print(
        f"  [{colour}]{WORDS[witness.verdict]}[/] {witness.law} {witness.fingerprint} · "
        f"{escape(witness.planner)}: {escape(witness.sentence)}",
        soft_wrap=True,
    )


def show_report(report: Report, console: Console, address_arguments: str) -> None:
    """The end of a run: verdict counts, each finding with one sentence and the line that runs it again."""
    console.print()
    table = Table(title="Verdicts, in cases", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, count in report.verdicts.items():
        if count or name in ("agree", "fixed"):
            table.add_row(
                f"[{COLOURS[name]}]{WORDS[name]}[/]",
                f"{count:,}",
                _meaning(name),
            )
    console.print(table)
    for reason, count in sorted(report.inconclusive.items(), key=lambda item: -item[1]):
        console.print(f"    inconclusive: {count:,} × {escape(reason)}")
    summary = summary_of(report)
    if summary.listed:
        # Before what needs attention, which must not scroll away above it.
        _show_known(summary, console)
    _section(console, "Findings", "what needs someone's attention", summary.open, address_arguments)
    _section(console, "Fixed by the patch", "broken by the unpatched planner, kept by the patched one", summary.fixed,
             address_arguments)  # fmt: skip
    for entry in report.unmatched:
        console.print(
            f"\n[yellow]Gone[/]: {entry.fingerprint}, known from {escape(entry.case)}, was not met "
            f"({escape(entry.reason)}).\n  Delete its entry from known.toml, or take this release out of the "
            "entry's list `under`.",
            soft_wrap=True,
        )
    console.print()
    left_out = f" (no time for its other {report.corpus_left_out})" if report.corpus_left_out else ""
    console.print(
        f"{report.cases:,} cases in {report.seconds:.1f} s ({report.cases_per_second:.0f} cases/s): "
        f"{report.corpus_cases} from the corpus{left_out}, {report.mutated:,} mutants, "
        f"{report.cases - report.corpus_cases - report.mutated:,} drawn; seed {report.seed}"
    )
    console.print(
        f"reached {report.pairs} pairs of features and {report.branches} branches of the planner; "
        f"each further case may add {report.novelty:.3f} pairs"
    )
    if report.planned_under_other_hash_seeds:
        console.print(f"{report.planned_under_other_hash_seeds:,} cases were planned under other hash seeds too")
    console.print(f"[bold]{escape(_last_line(report, summary))}[/]")


def _show_known(summary: Summary, console: Console) -> None:
    """The known faults met most often: how often, and why they stand."""
    by_count = sorted(summary.listed, key=lambda witness: -witness.seen)
    console.print(f"\n[bold]Known[/]: {len(by_count)} faults that known.toml lists were met")
    for witness in by_count[:KNOWN_SHOWN]:
        line = Text(f"  {witness.fingerprint} {witness.seen:>6,} × {reason_known(summary, witness)}", style="dim")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line)
    if len(by_count) > KNOWN_SHOWN:
        console.print(f"[dim]  and {len(by_count) - KNOWN_SHOWN} more; --report markdown=FILE lists them all[/]")


def _last_line(report: Report, summary: Summary) -> str:
    """The conclusion, with what a reader of a terminal wants beside it."""
    text = conclusion(summary)
    if summary.minded:
        text += f" First {summary.minded[0].id}: {summary.minded[0].summary}."
    if report.canary_survived:
        text += (
            f" It was the canary {report.canary}. Either the patched planner cannot be judged here (`kvfuzz doctor`), "
            "or kvfuzz is broken."
        )
    return text


def _meaning(name: str) -> str:
    return {
        "agree": "both planners keep every law that applies",
        "fixed": "only the unpatched planner breaks a law",
        "regression": "only the patched planner breaks a law",
        "unfixed": "both break it in the same way",
        "dispute": "both break it, not in the same way",
        "inconclusive": "a planner cannot express the case",
    }[name]


def _section(console: Console, title: str, words: str, found: list[Witness], arguments: str) -> None:
    if not found:
        return
    console.print(f"\n[bold]{title}[/] ({words})")
    for witness in found[:SHOWN]:
        console.print(
            f"\n  [{COLOURS[witness.verdict]}]{witness.id}[/] {WORDS[witness.verdict]}: {witness.law}, "
            f"{witness.planner} planner, fingerprint {witness.fingerprint}, seen {witness.seen:,} ×, "
            f"{witness.layers} layers"
        )
        console.print(f"    {escape(_sentence(witness.sentence))}", soft_wrap=True)
        console.print(f"    [dim]law: {escape(law_text(witness.law))}[/]", soft_wrap=True)
        console.print(f"    kvfuzz replay {witness.id}{escape(arguments)}", soft_wrap=True)
    if len(found) > SHOWN:
        console.print(f"\n  and {len(found) - SHOWN} more, rarer ones:")
        for witness in found[SHOWN:]:
            console.print(f"  {witness.id} {witness.law} {escape(witness.sentence[:140])}", soft_wrap=True)


def _sentence(text: str) -> str:
    """A summary as a sentence; the name of a field or of a layer that it begins with stays as it is."""
    ended = text if text.endswith((".", "!", "…")) else f"{text}."
    return ended[:1].upper() + ended[1:] if ended.partition(" ")[0].isalpha() else ended
