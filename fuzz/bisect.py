"""Finds the first version of vLLM that has a fault, or the first that has lost it.

Versions are releases (``pypi:A`` to ``pypi:B``) or the commits between two revisions of one checkout. Each is asked
the one case by a planner of its own; answers are kept for the run, trees in the cache. The search is by halving, so
it finds *a* change of state; it finds *the* change when there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from packaging.version import InvalidVersion, Version

from fuzz.minimise.asking import FocusedPair
from fuzz.pair import Pair, choose_contract
from fuzz.planners.address import Address, Contract, parse_address
from fuzz.planners.fetch import WHEEL_NAMES, FetchError
from fuzz.planners.process import PlannerError
from fuzz.planners.trees import Config, open_launch
from oracles.case import Case
from oracles.compare import Finding
from oracles.plan import Unsupported

INDEX_SECONDS = 60
"""A package index answers in a second or not at all."""


class BisectError(ValueError):
    """Two ends between which nothing can be sought: says why and what to do."""


class Probe(Struct, frozen=True, kw_only=True):
    """One version asked. ``state``: ``good``, ``bad``, or ``skipped`` where it cannot be asked."""

    address: str
    state: str
    why: str


class Bisected(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz bisect --json`` prints. ``first_bad`` comes right after ``last_good`` among those asked."""

    first_bad: str
    last_good: str
    skipped_between: tuple[str, ...]
    candidates: int
    probes: tuple[Probe, ...]


Ask = Callable[[str], Probe]


def candidates(good: str, bad: str) -> list[str]:
    """All addresses from ``good`` to ``bad``, both included, in the order of time between them.

    Raises:
        BisectError: the ends do not belong together, or nothing lies between them.
        FetchError: the index or the checkout cannot be asked.
    """
    first, last = parse_address(good), parse_address(bad)
    if first.scheme != last.scheme or first.scheme not in ("pypi", "git") or first.overlays != last.overlays:
        raise BisectError(f"--good {good} --bad {bad}: give two pypi: or two git: addresses with the same overlays")
    overlays = good[good.index("+") :] if first.overlays else ""
    found = releases(first.place, last.place) if first.scheme == "pypi" else revisions(first, last)
    if len(found) < 2:
        raise BisectError(f"--good {good} --bad {bad}: are one and the same")
    prefix = "pypi:" if first.scheme == "pypi" else f"git:{first.place}@"
    return [f"{prefix}{one}{overlays}" for one in found]


def is_mended(good: str, bad: str) -> bool:
    """Whether the good one of two releases is the later, so that the search is for the end of a fault."""
    first, last = parse_address(good), parse_address(bad)
    return first.scheme == "pypi" and _version(first.place) > _version(last.place)


def releases(one: str, other: str) -> list[str]:
    """Released versions from ``one`` to ``other`` in that direction, final releases only, from the package index."""
    low, high = sorted((_version(one), _version(other)))
    known = {version: str(version) for version in (low, high)}
    for name in WHEEL_NAMES:
        for version in _index(name):
            if low <= version <= high and not version.is_prerelease and not version.is_devrelease:
                known.setdefault(version, str(version))
    ordered = [known[version] for version in sorted(known)]
    return ordered if _version(one) <= _version(other) else ordered[::-1]


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise BisectError(f"{text!r} is no version; write pypi:0.33.0") from None


def _index(name: str) -> Iterator[Version]:
    """The versions of a package by ``pip index``; none when pip cannot tell."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check"],
        capture_output=True, text=True, check=False, timeout=INDEX_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    for text in found[1].split(",") if found else ():
        try:
            yield Version(text.strip())
        except InvalidVersion:
            continue


def revisions(good: Address, bad: Address) -> list[str]:
    """Commits of the checkout on the way from one revision to the other, oldest end first as given."""
    if good.place != bad.place:
        raise BisectError(f"git: addresses of two checkouts ({good.place}, {bad.place}); name one")
    first, last = (_git(good.place, "rev-parse", "--verify", f"{a.revision}^{{commit}}")[0] for a in (good, bad))
    if first == last:
        return [first]
    # The direction is told by ancestry: a fault may also have been mended on the way.
    for start, end, turned in ((first, last, False), (last, first, True)):
        found = _git(good.place, "rev-list", "--ancestry-path", "--reverse", f"{start}..{end}")
        if found:
            path = [start, *found]
            return path[::-1] if turned else path
    raise BisectError(f"{good.revision} and {bad.revision}: neither is an ancestor of the other; name a merge base")


def _git(place: str, *arguments: str) -> list[str]:
    try:
        done = subprocess.run(
            ["git", "-C", place, *arguments], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise FetchError("git is not installed; it is needed for git: addresses") from None
    if done.returncode != 0:
        raise BisectError(f"{place}: git {arguments[0]}: {done.stderr.strip()[:300]}")
    return done.stdout.split()


def search(found: Sequence[str], ask: Ask) -> Bisected:
    """Halves ``found`` (good at the front, bad at the end) until a good and a bad one are neighbours.

    Raises:
        BisectError: the ends are not what they are said to be.
    """
    probes: dict[int, Probe] = {}

    def state(at: int) -> str:
        if at not in probes:
            probes[at] = ask(found[at])
        return probes[at].state

    low, high = 0, len(found) - 1
    for at, wanted, option in ((low, "good", "--good"), (high, "bad", "--bad")):
        if state(at) != wanted:
            raise BisectError(f"{option} {found[at]} is {probes[at].state}: {probes[at].why}")
    while True:
        between = [at for at in range(low + 1, high) if at not in probes or probes[at].state != "skipped"]
        if not between:
            break
        middle = between[len(between) // 2]
        if state(middle) == "good":
            low = middle
        elif state(middle) == "bad":
            high = middle
    return Bisected(
        first_bad=found[high], last_good=found[low],
        skipped_between=tuple(found[low + 1 : high]), candidates=len(found),
        probes=tuple(probes[at] for at in sorted(probes)),
    )  # fmt: skip


def same_fault(target: Finding | None, found: Sequence[Finding]) -> Finding | None:
    """The finding that is ``target`` in another version: the fingerprint, or its law, path and error.

    The planner's functions are renamed and split between releases, so the frame does not count; the side does not
    either, since here both planners are the same tree. With no target any finding is the fault: one mistake may
    break another law in another release.
    """
    if target is None:
        return found[0] if found else None
    exact = next((f for f in found if f.fingerprint == target.fingerprint), None)
    return exact or next((f for f in found if _fault(f) == _fault(target)), None)


def _fault(finding: Finding) -> tuple[str, str, str]:
    return finding.law, finding.first_difference, finding.error


def asker(
    case: Case, target: Finding | None, contract: Contract | None, config: Config, case_seconds: float, memory: int
) -> Ask:
    """Asks one address by a planner of its own, and its ``+isolate`` twin where the contract needs one."""

    def ask(address: str) -> Probe:
        launch = open_launch(address, config)
        pair = Pair(launch, launch, choose_contract(contract, launch), case_seconds=case_seconds, memory=memory)
        try:
            pair.start()
            judged = FocusedPair(pair, target.law if target is not None else None).ask(case)
        except PlannerError as error:
            return Probe(address=address, state="skipped", why=str(error).splitlines()[0][:200])
        finally:
            pair.close()
        if isinstance(judged.patched, Unsupported):
            return Probe(address=address, state="skipped", why=f"cannot express {judged.patched.field}")
        found = same_fault(target, judged.verdict.findings)
        if found is not None:
            return Probe(address=address, state="bad", why=found.summary)
        others = ", ".join(f.law for f in judged.verdict.findings)
        return Probe(address=address, state="good", why=f"shows {others} only" if others else "shows no finding")

    return ask


__all__ = ["BisectError", "Bisected", "Probe", "asker", "candidates", "releases", "revisions", "search"]
