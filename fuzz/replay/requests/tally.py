"""Sums up what serving many cases showed: each distinct fault once, with its smallest case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from fuzz.known import KnownFindings
from fuzz.replay.requests.asking import RequestReplay
from fuzz.replay.requests.checks import severity_of
from oracles.case import Case, Shortlex, shortlex
from oracles.compare import Finding
from oracles.law import Breach, Severity

RESULTS = ("CLEAN", "QUALITY", "KNOWN", "UNSOUND", "BROKEN", "SKIPPED", "ERROR")


class Fault(Struct, frozen=True, kw_only=True):
    """One distinct fault. ``seen`` counts cases and planners that showed it; ``id`` is the smallest of the cases, which
    ``planner`` serves so, and ``summary`` the sentence about that case.
    """

    law: str
    path: str
    fingerprint: str
    severity: Severity
    known: bool
    seen: int
    id: str
    planner: str
    summary: str
    error: str = ""
    frame: str = ""

    @property
    def finding(self) -> Finding:
        """The fault as runs store theirs: of a planner compared with itself."""
        return Finding(
            law=self.law, verdict="unfixed", planner="patched", fingerprint=self.fingerprint, summary=self.summary,
            first_difference=self.path, error=self.error, frame=self.frame,
        )  # fmt: skip


def with_known(replays: Iterable[RequestReplay], known: KnownFindings) -> Iterator[RequestReplay]:
    """The replays, those of which every fault is listed as known marked so."""
    for one in replays:
        faults = [f for b, f in zip(one.breaches, one.fingerprints, strict=True) if severity_of(b) == "fault"]
        listed = one.result == "BROKEN" and all(known.covers(fault, "unfixed") for fault in faults)
        yield structs.replace(one, result="KNOWN") if listed else one


class Tally:
    """Counts of results, reasons and faults, and the smallest case of each fault."""

    def __init__(self, known: KnownFindings) -> None:
        self._known = known
        self._faults: dict[str, Fault] = {}
        self._sizes: dict[str, Shortlex] = {}
        self.cases: dict[str, Case] = {}
        self.counts = dict.fromkeys(RESULTS, 0)
        self.reasons: dict[str, int] = {}

    def add(self, replay: RequestReplay, case: Case) -> None:
        """Takes one replay into account."""
        self.counts[replay.result] += 1
        if replay.reason:
            self.reasons[replay.reason] = self.reasons.get(replay.reason, 0) + 1
        if replay.result == "UNSOUND":
            return  # `kvfuzz replay` tells what is wrong with the plan
        for breach, fingerprint in zip(replay.breaches, replay.fingerprints, strict=True):
            self._add_fault(breach, fingerprint, replay, case)

    def _add_fault(self, breach: Breach, fingerprint: str, replay: RequestReplay, case: Case) -> None:
        held, size = self._faults.get(fingerprint), shortlex(case)
        if held is None or size < self._sizes[fingerprint]:
            self._sizes[fingerprint], self.cases[fingerprint] = size, case
            held = Fault(
                law=breach.law, path=breach.path, fingerprint=fingerprint, severity=severity_of(breach),
                known=self._known.covers(fingerprint, "unfixed"), seen=held.seen if held is not None else 0,
                id=replay.id, planner=replay.planner, summary=breach.detail, error=breach.error, frame=breach.frame,
            )  # fmt: skip
        self._faults[fingerprint] = structs.replace(held, seen=held.seen + 1)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The faults, those that are news first, then by how often they were seen."""
        return tuple(sorted(
            self._faults.values(), key=lambda f: (f.severity != "fault", f.known, -f.seen, f.fingerprint)
        ))  # fmt: skip
