"""The command ``score``: planted defects, and how soon a run finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli_common import Failure, JsonFlag, duration, err, known_findings, out, print_json
from fuzz.planners.process import LIBRARY
from fuzz.score.mutants import MutantError, read_mutants
from fuzz.score.run import Setting, Tried, try_mutants
from fuzz.score.show import show_score
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
    json: JsonFlag = False,
) -> None:
    """Plant defects in the planner and measure how many are found, how soon, and through what."""
    try:
        chosen = read_mutants(mutants, only or ())
    except MutantError as error:
        raise Failure(str(error), 2) from None
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
