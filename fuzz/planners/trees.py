"""From an address to something that can be run: a folder with a ``vllm`` package, overlays, an interpreter.

Wheels are unpacked once into a content-addressed cache (Python files and metadata only); a revision is
exported once per commit, never touching the checkout; a diff is applied to a throw-away copy of links.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from fuzz.case_files import read_toml
from fuzz.planners import fetch
from fuzz.planners.address import CONTRACTS, Address, AddressError, Contract, parse_address

CONFIG_FILE = "kvfuzz.toml"

_BUILDER = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)[.:]([A-Za-z_]\w*)", re.ASCII)

BUILDERS = Path("vllm", "v1", "core", "kv_cache_config_builder.py")
"""The file of a tree in which platforms can name a class of their own for grouping and placement (0.33 and later)."""


class Launch(Struct, frozen=True, kw_only=True):
    """Everything a worker process is started with. ``tree`` is put ahead of the interpreter's own packages; ``builder``
    is the dotted path of the class through which it plans, empty for the one that its platform names.
    """

    address: str
    python: str
    tree: str | None
    overlays: tuple[str, ...]
    revision: str
    contract: Contract | None
    folder: str
    builder: str = ""

    def environment(self, hash_seed: int) -> dict[str, str]:
        """The process environment: the caller's, less what would let it change a plan."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "PYTHON"))}
        path = [self.tree] if self.tree else []
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
            "PYTHONFAULTHANDLER": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_PLUGINS": "",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_TARGET_DEVICE": "cpu",
        }


class PlannerEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[planners.NAME]`` in kvfuzz.toml."""

    address: str
    python: str | None = None
    contract: Contract | None = None
    builder: str | None = None


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """kvfuzz.toml."""

    planners: dict[str, PlannerEntry] = {}


def read_config(folder: Path) -> Config:
    """The kvfuzz.toml of ``folder`` or of the nearest folder above it; an empty one when there is none.

    Raises:
        AddressError: the file is no valid configuration; names the field.
    """
    for place in (folder, *folder.parents):
        path = place / CONFIG_FILE
        if not os.path.lexists(path):
            continue
        try:
            return msgspec.convert(tomllib.loads(read_toml(path)), type=Config)
        except msgspec.ValidationError as error:
            raise AddressError(f"{path}: {error}; planner entries have address, python, contract and builder") from None
        except OSError as error:
            raise AddressError(f"{path}: cannot be read ({error.strerror or error})") from None
        except (ValueError, RecursionError) as error:
            raise AddressError(f"{path}: not readable as TOML ({error})") from None
    return Config()


def open_launch(text: str, config: Config | None = None) -> Launch:
    """Resolves an address, fetching and unpacking as needed. Raises AddressError and fetch.FetchError."""
    config = read_config(Path.cwd()) if config is None else config
    address = parse_address(text)
    python, contract, builder = sys.executable, None, ""
    if address.scheme == "name":
        entry = config.planners.get(address.place)
        if entry is None:
            known = ", ".join(sorted(config.planners)) or "none"
            raise AddressError(f"planner {address.place!r}: not in {CONFIG_FILE} (known: {known}) and no address")
        inner = parse_address(entry.address)
        if inner.scheme == "name":
            raise AddressError(f"planner {address.place!r}: its address must not be another name")
        address = msgspec.structs.replace(inner, text=text, overlays=(*inner.overlays, *address.overlays))
        contract = entry.contract
        if entry.python is not None:
            python = _interpreter(address.text, entry.python)
        if entry.builder is not None:
            builder = _class_path(address.text, entry.builder)
    if contract is None and address.isolates:
        contract = "isolate"
    tree, revision = _tree(address, python)
    diffs = [o for o in address.overlays if Path(o).suffix in (".diff", ".patch")]
    if diffs:
        tree = _patched(address, tree, python, diffs)
    if builder:
        _check_has_builders(address, tree or _installed_root(address, python))
    return Launch(
        address=text,
        python=python,
        tree=str(tree) if tree else None,
        overlays=tuple(o for o in address.overlays if o not in diffs),
        revision=revision,
        contract=contract,
        folder=str(fetch.cache_folder()),
        builder=builder,
    )


def _interpreter(text: str, python: str) -> str:
    found = shutil.which(str(Path(python).expanduser()))
    if found is None:
        raise AddressError(f"planner {text!r}: python {python!r} is not an executable; correct it in {CONFIG_FILE}")
    return found


def _class_path(text: str, builder: str) -> str:
    """``module:Class`` or ``module.Class`` as the dotted path by which vLLM names a builder."""
    found = _BUILDER.fullmatch(builder)
    if found is None:
        raise AddressError(f"planner {text!r}: builder {builder!r}: write module:Class or module.Class")
    return f"{found[1]}.{found[2]}"


def _check_has_builders(address: Address, root: Path) -> None:
    if not (root / BUILDERS).is_file():
        raise AddressError(
            f"planner {address.text!r}: builder: this vLLM has no KVCacheConfigBuilder; name a tree of 0.33 or later, "
            f"or leave builder out of {CONFIG_FILE}"
        )


def _tree(address: Address, python: str) -> tuple[Path | None, str]:
    """(the folder ahead on the path, what names the exact source); None is the interpreter's own vLLM."""
    del python
    if address.scheme == "pypi":
        tree = fetch.wheel_tree(address.place)
        return tree, tree.name[:12]
    if address.scheme == "git":
        tree, commit = fetch.git_tree(Path(address.place), address.revision)
        return tree, commit[:12]
    if address.scheme == "path":
        return Path(address.place), fetch.describe_checkout(Path(address.place))
    return None, ""


def _patched(address: Address, tree: Path | None, python: str, diffs: list[str]) -> Path:
    """A copy of the tree with the diffs applied: links for all files but those that a diff touches."""
    root = tree if tree is not None else _installed_root(address, python)
    target = Path(tempfile.mkdtemp(prefix="patched-", dir=fetch.cache_folder()))
    fetch.remove_at_exit(target)
    fetch.link_package(root / "vllm", target / "vllm")
    for diff in diffs:
        fetch.apply_diff(target, Path(diff))
    return target


def _installed_root(address: Address, python: str) -> Path:
    """The folder that holds the interpreter's own vLLM."""
    found = subprocess.run(
        [python, "-c", "import importlib.util as u; s = u.find_spec('vllm'); print(s.origin if s else '')"],
        capture_output=True,
        text=True,
        check=False,
        cwd=fetch.cache_folder(),
    ).stdout.strip()
    if not found:
        raise AddressError(f"planner address {address.text!r}: {python} has no vllm; install one or use pypi:VERSION")
    return Path(found).parent.parent


__all__ = ["CONTRACTS", "Config", "Launch", "PlannerEntry", "open_launch", "read_config"]
