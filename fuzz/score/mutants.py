"""Reads what a mutant says of itself, without running it: the literal constants at the top of its file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from fuzz.case_files import read_limited
from oracles.law import Contract

MAX_FILE_BYTES = 64 * 1024
"""A mutant is a handful of lines."""

BASE_ADDRESS: dict[Contract, str] = {"native": "installed", "isolate": "installed+isolate"}
"""The sound planner of each contract."""


class MutantError(ValueError):
    """A mutant file that does not say what it must: names the file, the constant and the remedy."""


class Mutant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One planted defect.

    ``base`` is the contract of the planner it is planted in. A ``silent`` one never refuses what its base plans, a
    ``loud`` one may, an ``equivalent`` one answers as its base does. ``report`` is the URL of what it is modelled on,
    or empty. ``seen_by`` names the laws, and the reference's stages, of which one at least should see it.
    """

    name: str
    path: str
    summary: str
    base: Contract
    kind: Literal["loud", "silent", "equivalent"]
    report: str
    seen_by: tuple[str, ...]

    @property
    def address(self) -> str:
        """The planner with the defect."""
        return f"{BASE_ADDRESS[self.base]}+{self.path}"


_CONSTANTS = {"BASE": "base", "KIND": "kind", "REPORT": "report", "SEEN_BY": "seen_by"}


def read_mutant(path: Path) -> Mutant:
    """Reads one file. Raises MutantError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise MutantError(f"{path}: larger than {MAX_FILE_BYTES} bytes; a mutant is one small overlay")
        tree = ast.parse(read_limited(path, MAX_FILE_BYTES).decode())
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, MutantError):
            raise
        raise MutantError(f"{path}: not readable as Python ({error})") from None
    said: dict[str, Any] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _CONSTANTS:
                try:
                    said[_CONSTANTS[name]] = ast.literal_eval(value)
                except (ValueError, TypeError):
                    raise MutantError(f"{path}: {name}: is not a literal; write it out") from None
    for constant, field in _CONSTANTS.items():
        if field not in said:
            raise MutantError(f"{path}: {constant}: missing; add it at the top of the file")
    if not any(isinstance(node, ast.FunctionDef) and node.name == "apply" for node in tree.body):
        raise MutantError(f"{path}: apply: missing; define apply(planner_module)")
    summary = " ".join((ast.get_docstring(tree) or "").split())
    if not summary:
        raise MutantError(f"{path}: docstring: missing; say what is wrong in the planner")
    try:
        return msgspec.convert(
            {"name": path.stem, "path": str(path.resolve()), "summary": summary, **said}, type=Mutant
        )
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].partition("`")[0].partition("[")[0]
        constant = next((name for name, known in _CONSTANTS.items() if known == field), field)
        raise MutantError(f"{path}: {constant}: {error}") from None


def read_mutants(folder: Path, only: Sequence[str] = ()) -> tuple[Mutant, ...]:
    """Reads the mutants of ``folder`` by name, all of them or those named. Raises MutantError."""
    files = {path.stem: path for path in sorted(folder.glob("*.py")) if not path.stem.startswith("_")}
    if not files:
        raise MutantError(f"{folder}: holds no mutants; name their folder by --mutants")
    unknown = sorted(set(only) - files.keys())
    if unknown:
        raise MutantError(f"--only {unknown[0]}: no such mutant in {folder}")
    return tuple(read_mutant(files[name]) for name in (only or files))
