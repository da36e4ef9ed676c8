"""The address grammar of planners (DESIGN 3).

``installed`` · ``pypi:VERSION`` · ``path:DIR`` · ``git:DIR@REV`` · a name from ``kvfuzz.toml``, then any number
of overlays: ``+isolate``, ``+FILE.py``, ``+FILE.diff``.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Literal

from msgspec import Struct

Scheme = Literal["installed", "pypi", "path", "git", "name"]
Contract = Literal["native", "isolate"]
CONTRACTS: tuple[Contract, ...] = ("native", "isolate")

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]{0,60}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")
_OVERLAY_START = re.compile(r"\+(?=isolate(?:\+|$)|[^+]*\.(?:py|diff|patch)(?:\+|$))")
GRAMMAR = "installed | pypi:VERSION | path:DIR | git:DIR@REV | NAME, then +isolate, +FILE.py or +FILE.diff"


UNPATCHED, PATCHED = "installed", "installed+isolate"
"""The planners of a run that names none."""


def as_options(unpatched: str, patched: str, contract: str | None = None) -> str:
    """The options of a command that ask the same planners again, with a space before each; empty for the defaults."""
    told = (("unpatched", unpatched, UNPATCHED), ("patched", patched, PATCHED), ("contract", contract, None))
    return "".join(f" --{name} {shlex.quote(value)}" for name, value, default in told if value and value != default)


def names_release(text: str) -> bool:
    """Whether an address names a release of vLLM as it was published, at most with the built-in ``isolate``."""
    base, *overlays = _OVERLAY_START.split(text)
    return (base == "installed" or base.startswith("pypi:")) and set(overlays) <= {"isolate"}


class AddressError(ValueError):
    """An address that names no planner: says what is wrong and what would be right."""


class Address(Struct, frozen=True):
    """A parsed address. ``place`` is the version, folder or name; ``revision`` belongs to ``git``."""

    text: str
    scheme: Scheme
    place: str = ""
    revision: str = ""
    overlays: tuple[str, ...] = ()

    @property
    def isolates(self) -> bool:
        """Whether the built-in overlay for the contract ``isolate`` is asked for."""
        return "isolate" in self.overlays


def parse_address(text: str) -> Address:
    """Parses one address. Raises AddressError."""
    if not text or not text.isprintable():
        raise AddressError(f"planner address {text!r}: expected {GRAMMAR}")
    base, *overlays = _OVERLAY_START.split(text)
    for overlay in overlays:
        if overlay != "isolate" and not Path(overlay).expanduser().is_file():
            raise AddressError(f"planner address {text!r}: overlay file {overlay!r} does not exist")
    found = tuple(o if o == "isolate" else str(Path(o).expanduser().resolve()) for o in overlays)
    scheme, colon, place = base.partition(":")
    if base == "installed":
        return Address(text=text, scheme="installed", overlays=found)
    if colon and scheme == "pypi":
        if not _VERSION.fullmatch(place):
            raise AddressError(f"planner address {text!r}: {place!r} is no version; write pypi:0.33.0")
        return Address(text=text, scheme="pypi", place=place, overlays=found)
    if colon and scheme == "path":
        folder = _folder(text, place)
        if not (folder / "vllm" / "__init__.py").is_file():
            raise AddressError(f"planner address {text!r}: {folder} holds no vllm package; name the folder above it")
        return Address(text=text, scheme="path", place=str(folder), overlays=found)
    if colon and scheme == "git":
        where, at, revision = place.rpartition("@")
        if not at or not where or not revision or revision.startswith("-"):
            raise AddressError(f"planner address {text!r}: write git:DIR@REV, such as git:~/vllm@main")
        return Address(text=text, scheme="git", place=str(_folder(text, where)), revision=revision, overlays=found)
    if not colon and _NAME.fullmatch(base):
        return Address(text=text, scheme="name", place=base, overlays=found)
    raise AddressError(f"planner address {text!r}: expected {GRAMMAR}")


def _folder(text: str, place: str) -> Path:
    folder = Path(place).expanduser()
    if not folder.is_dir():
        raise AddressError(f"planner address {text!r}: folder {place!r} does not exist")
    return folder.resolve()
