"""The command ``score``: planted defects, and how soon a run finds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli_common import Failure, JsonFlag, duration, err, known_findings, out, print_json
from fuzz.planners.process import LIBRARY
from fuzz.score.mutants import Mutant, MutantError, read_mutants
from fuzz.score.rates import Shown, rate_mutants, summarise_rates
from fuzz.score.run import Setting, Tried, try_mutants
from fuzz.score.show import show_rates, show_score
from fuzz.score.summary import summarise

MUTANTS = LIBRARY / "tests" / "mutants"
"""They are part of the sources, not of an installed wheel."""


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.command()(score)


def score(
    mutants: Annotated[Path, typer.Option(help="Folder of the planted defects.")] = MUTANTS,
    seeds: Annotated[int, typer.Option(min=1, help="How many streams of cases each mutant is tried on.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 1,
    budget: Annotated[str, typer.Option(help="CPU time for one mutant on one stream: 60s, 2m.")] = "60s",
    cases: Annotated[int | None, typer.Option(min=1, help="Cases for one mutant on one stream.")] = None,
    min_score: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 1 when a smaller share is detected.")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="Try this mutant only; several times for more.")] = None,
    compare: Annotated[
        bool, typer.Option("--compare/--no-compare", help="Also with lesser strategies and oracles.")
    ] = True,
    rates: Annotated[
        int | None,
        typer.Option(
            min=1, help="Instead: how many of this many cases of each seed show each defect, and of naive ones."
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Plant defects in the planner and measure how many are found, how soon, and through what."""
    try:
        chosen = read_mutants(mutants, only or ())
    except MutantError as error:
        raise Failure(str(error), 2) from None
    if rates is not None:
        _rates(chosen, tuple(range(seed, seed + seeds)), rates, json)
        return
    setting = Setting(
        seeds=tuple(range(seed, seed + seeds)), seconds=duration(budget), cases=cases, compare=compare
    )  # fmt: skip
    known = known_findings(None)
    console, done = err(), []

    def note(tried: Tried) -> None:
        done.append(tried)
        found = sum("all" in trial.detected for trial in tried.trials if trial.strategy == "kvfuzz")
        words = "could not be tried" if tried.error else f"detected in {found} of {seeds}"
        console.print(f"[dim]{len(done)}/{len(chosen)}[/] {tried.mutant.name}: {words}")

    result = summarise(try_mutants(chosen, setting, known, note), setting)
    if json:
        print_json(result)
    else:
        show_score(result, out())
    if result.errors:
        raise typer.Exit(3)
    if result.equivalents_reported or (min_score is not None and result.score < min_score):
        raise typer.Exit(1)


def _rates(mutants: Sequence[Mutant], seeds: tuple[int, ...], cases: int, json: bool) -> None:
    console, done, all_cases = err(), [], cases * len(seeds)

    def note(one: Shown) -> None:
        done.append(one)
        words = ", ".join(f"{strategy} {count}" for strategy, count in one.shown.items())
        console.print(f"[dim]{len(done)}/{len(mutants)}[/] {one.name}: of {all_cases} cases {words}")

    result = summarise_rates(rate_mutants(mutants, seeds, cases, known_findings(None), note), seeds, cases)
    if json:
        print_json(result)
    else:
        show_rates(result, out())
    if any(one.error for one in result.mutants):
        raise typer.Exit(3)
