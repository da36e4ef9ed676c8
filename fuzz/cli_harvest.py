"""The commands about real models: ``harvest``, ``check`` and ``compare-plans``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.json import encode
from rich.markup import escape

from fuzz.case_files import write_case, write_whole
from fuzz.cli_common import (
    Failure,
    JsonFlag,
    Patched,
    Unpatched,
    err,
    known_findings,
    open_pair,
    out,
    planners_at,
    print_json,
)
from fuzz.corpus import corpus_folder
from fuzz.harvest.check import check_model, show_checked
from fuzz.harvest.compare import changes_page, compare_models, pin_models, pins_text
from fuzz.harvest.config_files import ConfigError, read_config
from fuzz.harvest.configs import read_models
from fuzz.harvest.models import Modelled, model_case
from fuzz.harvest.process import MODEL_BYTES, MODEL_SECONDS, Harvester
from fuzz.harvest.requests import Draft, Request, check_request
from fuzz.harvest.table import figures, kinds_of, models_page, row_of
from fuzz.planners.process import CASE_SECONDS, MEMORY_BYTES
from fuzz.planners.trees import open_launch
from fuzz.planners.trees import read_config as read_settings
from fuzz.replay.memory.check import Disagreement
from oracles.case import case_id, dump_case

CORPUS_PLATFORM = "sm90"
"""The device whose backends choose block sizes in the corpus: the one most reports are about."""


def _device(platform: str | None) -> str | None:
    """The name of a device without the maker that may stand before it."""
    return platform and platform.removeprefix("cuda-")


MemoryFlag = Annotated[float, typer.Option("--available-gib", min=0.001, max=2**20, help="GiB of cache per worker.")]
PlatformFlag = Annotated[
    str, typer.Option(callback=_device, help="cpu, or a faked CUDA device: cuda-sm80, cuda-sm90, cuda-sm100.")
]
OptionalPlatform = Annotated[
    str | None,
    typer.Option(
        "--platform", callback=_device,
        help="cpu (default), or a faked CUDA device: cuda-sm80, cuda-sm90 (default with --all), cuda-sm100.",
    ),
]  # fmt: skip
DraftFlag = Annotated[str | None, typer.Option(help="config.json of a draft, its folder, or mtp for the model's own.")]
MethodFlag = Annotated[str | None, typer.Option(help="Speculative method; default: what vLLM makes of the draft.")]
TokensFlag = Annotated[int, typer.Option(min=1, max=64, help="Tokens the draft proposes in a step.")]
SizeFlag = Annotated[int, typer.Option(min=1, max=64)]
BlockFlag = Annotated[int | None, typer.Option(min=1, max=2**20, help="Block size in tokens; default: vLLM's choice.")]
LengthFlag = Annotated[int | None, typer.Option(min=1, max=2**30, help="Longest sequence in tokens.")]
TypeFlag = Annotated[str | None, typer.Option("--kv-dtype", help="auto, fp8, … as vLLM's --kv-cache-dtype.")]
DcpFlag = Annotated[str, typer.Option("--dcp", help="DCP sizes, separated by commas.")]
PlannerFlag = Annotated[str, typer.Option(help="Address of the planner whose vLLM is asked.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.command()(harvest)
    app.command()(check)
    app.command("compare-plans")(compare_plans)
    app.command("pin-plans")(pin_plans)


@contextmanager
def _usage() -> Iterator[None]:
    """Turns a configuration that cannot be used into exit code 2."""
    try:
        yield
    except ConfigError as error:
        raise Failure(str(error), 2) from None


def harvest(
    model: Annotated[str | None, typer.Argument(help="A model's folder or its config.json.")] = None,
    all_: Annotated[Path | None, typer.Option("--all", help="Every model of a folder of tables instead.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Case file; with --all a folder.")] = None,
    table: Annotated[Path | None, typer.Option(help="With --all: write the table of models there.")] = None,
    draft: DraftFlag = None,
    draft_method: MethodFlag = None,
    draft_tokens: TokensFlag = 1,
    tp: SizeFlag = 1,
    dcp: SizeFlag = 1,
    pp: SizeFlag = 1,
    block_size: BlockFlag = None,
    kv_dtype: TypeFlag = None,
    platform: OptionalPlatform = None,
    max_model_len: LengthFlag = None,
    available_gib: MemoryFlag = 64.0,
    planner: PlannerFlag = "installed",
    json: JsonFlag = False,
) -> None:
    """Ask vLLM's own model classes what each layer caches, and write that as a case."""
    if (model is None) == (all_ is None):
        raise Failure("give one model's folder or config.json, or --all FOLDER", 2)
    with _usage():
        if all_ is not None:
            _harvest_all(all_, output, table, platform or CORPUS_PLATFORM, planner, json=json)
            return
        assert model is not None
        request = _request(
            model, platform or "cpu", tp, dcp, pp, block_size, kv_dtype, max_model_len,
            _draft(draft, draft_method, draft_tokens),
        )  # fmt: skip
        with _harvester(planner, request.platform) as harvester:
            made = model_case(harvester, request, memory=int(available_gib * 2**30))
    _tell_degraded(made)
    if output is not None:
        write_case(output, made.case)
    if json:
        print_json(_summary(made, output))
    elif output is None:
        sys.stdout.write(dump_case(made.case).decode())
    else:
        out().print(_line(made))


def _harvest_all(
    folder: Path, output: Path | None, table: Path | None, platform: str, planner: str, *, json: bool
) -> None:
    models = read_models(folder)
    check_request(models[0].request(platform))
    rows, done, refused = [], [], []
    console = err() if json else out()
    with _harvester(planner, platform) as harvester:
        for model in models:
            try:
                made = model_case(harvester, model.request(platform), by_hand=True)
            except ConfigError as error:
                refused.append(str(error))
                console.print(f"[bold red]refused[/] {escape(str(error))}", soft_wrap=True)
                continue
            rows.append(row_of(made, model.family))
            done.append(made)
            if output is not None:
                write_case(output / f"{model.name}.{platform}.json", made.case)
            console.print(_line(made), soft_wrap=True)
        version = harvester.version
    if table is not None:
        command = f"kvfuzz harvest --all {folder} --platform {platform} --table {table}"
        write_whole(table, models_page(rows, version, platform, command).encode())
    if json:
        print_json({"models": [_summary(made, None) for made in done], "refused": refused})
    slowest = max(done, key=lambda made: made.seconds, default=None)
    if slowest is not None:
        most = max(made.peak_bytes for made in done)
        console.print(
            f"{len(done)} models; slowest {slowest.name} with {slowest.seconds:.1f} s; "
            f"most memory {most / 2**30:.2f} GiB"
        )
    if refused:
        raise Failure(f"{len(refused)} of {len(models)} models could not be harvested", 2)


def check(
    model: Annotated[str, typer.Argument(help="A model's folder or its config.json.")],
    draft: DraftFlag = None,
    draft_method: MethodFlag = None,
    draft_tokens: TokensFlag = 1,
    tp: SizeFlag = 1,
    dcp: SizeFlag = 1,
    pp: SizeFlag = 1,
    block_size: BlockFlag = None,
    kv_dtype: TypeFlag = None,
    platform: PlatformFlag = CORPUS_PLATFORM,
    max_model_len: LengthFlag = None,
    available_gib: MemoryFlag = 64.0,
    unpatched: Unpatched = "installed",
    patched: Patched = "installed+isolate",
    json: JsonFlag = False,
) -> None:
    """Tell how a model will be grouped, what that wastes, whether it starts, and what a patch changes."""
    with _usage():
        request = _request(
            model, platform, tp, dcp, pp, block_size, kv_dtype, max_model_len, _draft(draft, draft_method, draft_tokens)
        )
        pair = open_pair(unpatched, patched, None, CASE_SECONDS, MEMORY_BYTES / 2**30)
        try:
            # The planners start while the model is built.
            starting = [pair.unpatched.start(), pair.patched.start()]
            with _harvester(unpatched, platform) as harvester:
                made = model_case(harvester, request, memory=int(available_gib * 2**30))
            for one in starting:
                one.result()
            # A class that owns its grouping may read more of the model than a case carries.
            pair.config = encode(request.config).decode()
            checked = check_model(pair, made, known_findings(None))
        except Disagreement as error:
            raise Failure(f"a fault of kvfuzz, please report it: {error}", 3) from None
        finally:
            pair.close()
    if json:
        print_json(checked)
    else:
        show_checked(checked, out())
    raise typer.Exit(1 if checked.failed else 0)


def compare_plans(
    unpatched: Unpatched = "installed",
    patched: Patched = "installed+isolate",
    dcp: DcpFlag = "1,2,4,8",
    models: Annotated[Path | None, typer.Option(help="Folder of harvested cases; default: the corpus.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the page there.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show, per model, what a patch changes in the plans: groups, bytes per block, capacity."""
    with _usage():
        sizes = _sizes(dcp)
        with planners_at([unpatched, patched]) as (before, after):
            compared = compare_models(before, after, _folder(models), sizes)
    page = changes_page(compared)
    if output is not None:
        write_whole(output, page.encode())
    if json:
        print_json(compared)
    elif output is None:
        sys.stdout.write(page)
    else:
        told = sum(row.telling for row in compared.rows)
        out().print(f"{output}: {told} of {len(compared.rows)} plans change")


def pin_plans(
    planner: PlannerFlag = "installed",
    dcp: DcpFlag = "1,2,4,8",
    models: Annotated[Path | None, typer.Option(help="Folder of harvested cases; default: the corpus.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the lines there.")] = None,
    json: JsonFlag = False,
) -> None:
    """Write one line per plan, so that a change of the planner shows as a diff to review."""
    with _usage():
        sizes = _sizes(dcp)
        with planners_at([planner]) as (one,):
            pins = pin_models(one, _folder(models), sizes)
            version = one.hello().version
    text = pins_text(pins, version)
    if output is not None:
        write_whole(output, text.encode())
    if json:
        print_json({"version": version, "pins": pins})
    elif output is None:
        sys.stdout.write(text)
    else:
        out().print(f"{output}: {len(pins)} plans of vLLM {version}")


def _folder(models: Path | None) -> Path:
    return corpus_folder() / "models" if models is None else models


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--dcp {text!r}: write sizes as 1,2,4,8") from None
    if not all(1 <= size <= 64 for size in sizes):
        raise ConfigError(f"--dcp {text!r}: sizes are from 1 to 64")
    return sizes


def _request(
    model: str, platform: str, tp: int, dcp: int, pp: int, block: int | None, dtype: str | None, length: int | None,
    draft: Draft | None,
) -> Request:  # fmt: skip
    path = Path(model)
    if not path.exists():
        raise ConfigError(f"{model}: no such file or folder; give a model's folder or its config.json")
    config = read_config(path)
    name = path.name if path.is_dir() else path.stem if path.stem != "config" else path.resolve().parent.name
    request = Request(
        name=name if name.isprintable() else "model", config=config, platform=platform, tp=tp, dcp=dcp, pp=pp,
        block_size=block, kv_cache_dtype=dtype, max_model_len=length, draft=draft,
    )  # fmt: skip
    check_request(request)
    return request


def _draft(text: str | None, method: str | None, tokens: int) -> Draft | None:
    if text is None:
        if method is not None:
            raise ConfigError(f"--draft-method {method}: needs --draft")
        return None
    if text == "mtp":
        return Draft(method=method or "mtp", tokens=tokens)
    if not Path(text).exists():
        raise ConfigError(f"--draft {text}: no such file or folder; give a draft's config.json, or mtp")
    return Draft(method=method, tokens=tokens, config=read_config(Path(text)))


def _harvester(planner: str, platform: str) -> Harvester:
    launch = open_launch(planner, read_settings(Path.cwd()))
    return Harvester(launch, platform, seconds=MODEL_SECONDS, memory=MODEL_BYTES)


def _tell_degraded(made: Modelled) -> None:
    if made.degraded:
        err().print(
            f"[bold yellow]estimated[/] from the configuration alone; not harvested: {escape(made.degraded)}",
            soft_wrap=True,
        )


def _summary(made: Modelled, output: Path | None) -> dict[str, Any]:
    return {
        "name": made.name, "grade": made.grade, "case": case_id(made.case), "file": str(output) if output else None,
        "vllm": made.version, "architecture": made.architecture, "owns_grouping": made.owns_grouping,
        "layers": kinds_of(made.case),
        "layout": made.case.settings.layout, "workers_see_other_settings": made.workers is not None,
        "degraded": made.degraded, "notes": made.notes, "seconds": made.seconds, "peak_bytes": made.peak_bytes,
    }  # fmt: skip


def _line(made: Modelled) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in kinds_of(made.case).items())
    blocks = figures(sorted({spec.block_size for spec in made.case.specs}))
    return (
        f"[green]{made.grade}[/] {escape(made.name)}: {kinds}; block {blocks}; {made.case.settings.layout}; "
        f"{'grouped by its own class; ' if made.owns_grouping else ''}"
        f"{made.seconds:.1f} s, {made.peak_bytes / 2**30:.2f} GiB"
    )
