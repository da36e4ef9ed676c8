"""The score on a terminal: the mutants, survivors first, then the ratio table."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fuzz.score.rates import Quartiles, Rates, Shown
from fuzz.score.summary import Median, MutantScore, Score


def show_score(score: Score, console: Console) -> None:
    """Prints both tables and the result."""
    table = Table(title="Planted defects", box=None, pad_edge=False, title_justify="left")
    for title in ("mutant", "kind", "reached", "triggered", "detected", "cases", "seconds", "by"):
        table.add_column(title, justify="right" if title in ("cases", "seconds") else "left", no_wrap=title != "by")
    for one in score.scores:
        table.add_row(*_row(one))
    console.print(table)
    if score.ratios:
        console.print(_ratio_table(score))
    words = f"[bold]{score.detected} of {score.mutants}[/] detected ({score.score:.1%})"
    words += f"; {score.equivalents} equivalent, {len(score.equivalents_reported)} of them reported"
    console.print(f"{words}; seeds {', '.join(map(str, score.seeds))}")
    for one in score.scores:
        if one.error:
            console.print(f"[red]{one.name} could not be tried:[/] {escape(one.error)}")


def _row(one: MutantScore) -> list[str]:
    if one.error:
        return [f"[red]{one.name}[/]", one.kind, "error"]
    style = "red" if one.survived or (one.kind == "equivalent" and one.detected) else ""
    name = f"[{style}]{one.name}[/]" if style else one.name
    counts = [f"{count}/{one.seeds}" for count in (one.reached, one.triggered, one.detected)]
    return [name, one.kind, *counts, _shown(one.cases, 0), _shown(one.seconds, 2), ", ".join(one.by)]


def _ratio_table(score: Score) -> Table:
    table = Table(title="What each part is worth", box=None, pad_edge=False, title_justify="left")
    for title in ("arrangement", "detected", "median cases", "times the cases of kvfuzz"):
        table.add_column(title, justify="left" if title == "arrangement" else "right")
    for row in score.ratios:
        table.add_row(row.name, f"{row.detected}/{row.mutants}", _shown(row.cases, 0), _shown(row.times, 1))
    return table


def _shown(median: Median | None, digits: int) -> str:
    if median is None:
        return "–"
    return f"{'> ' if median.at_least else ''}{median.value:,.{digits}f}"


def show_rates(rates: Rates, console: Console) -> None:
    """Prints the share of the cases that show each mutant, the rarest first, and how the strategies compare."""
    table = Table(title=f"Share of {rates.cases:,} cases that show it", box=None, pad_edge=False, title_justify="left")
    for title in ("mutant", "kind", "kvfuzz", "naive"):
        table.add_column(title, justify="left" if title in ("mutant", "kind") else "right", no_wrap=True)
    for one in rates.mutants:
        table.add_row(*_shares(one, rates.cases))
    console.print(table)
    for strategy, share in rates.shares.items():
        console.print(
            f"{strategy}: {_three(share, '.1%')}; {rates.rare[strategy]} mutants below 2 %, "
            f"{rates.never[strategy]} of them never shown"
        )
    console.print(
        f"[bold]times the naive share: {_three(rates.times, '.1f')}[/]; "
        f"cases to the first, naive to kvfuzz: {_three(rates.first, '.1f')} (quartiles)"
    )
    for one in rates.mutants:
        if one.error:
            console.print(f"[red]{one.name} could not be tried:[/] {escape(one.error)}")


def _shares(one: Shown, cases: int) -> list[str]:
    if one.error:
        return [f"[red]{one.name}[/]", one.kind, "error"]
    return [one.name, one.kind, *(f"{one.shown[strategy] / cases:.1%}" for strategy in ("kvfuzz", "naive"))]


def _three(one: Quartiles, form: str) -> str:
    return " / ".join(format(value, form) for value in (one.lower, one.median, one.upper))
