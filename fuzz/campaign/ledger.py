"""The *ledger*: verdicts counted, and the smallest witness of each fault kept on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, structs

from fuzz.campaign.batches import Counted, Result
from fuzz.campaign.events import RANK, Found, Witness
from fuzz.campaign.lane import fault_key
from fuzz.case_files import read_case
from fuzz.known import KnownFindings
from fuzz.store import Store
from oracles.case import Case, CaseError, Shortlex, case_id, shortlex
from oracles.compare import VERDICTS, Finding
from oracles.law import Contract


class Asked(Struct, frozen=True, kw_only=True):
    """How the findings of a run can be asked again."""

    contract: Contract
    unpatched: str
    patched: str


class Books(Struct, frozen=True, kw_only=True):
    """A ledger as stored. ``witnesses`` are by fingerprint and verdict."""

    cases: int = 0
    mutated: int = 0
    compared: int = 0
    planner_seconds: float = 0.0
    verdicts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    witnesses: dict[str, Witness] = {}


class Ledger:
    """Counts verdicts and keeps the smallest witness of each fingerprint."""

    def __init__(self, asked: Asked, store: Store, known: KnownFindings, books: Books | None = None) -> None:
        books = books or Books()
        self._asked, self._store, self._known = asked, store, known
        self.cases = books.cases
        self.mutated = books.mutated
        self.compared = books.compared
        self.planner_seconds = books.planner_seconds
        self.verdicts: Counter[str] = Counter(books.verdicts)
        for name in VERDICTS:
            self.verdicts.setdefault(name, 0)
        self.reasons: Counter[str] = Counter(books.reasons)
        self._witnesses = dict(books.witnesses)
        self._sizes: dict[str, Shortlex] = {}
        self._caseless: Counter[str] = Counter()
        for key, witness in books.witnesses.items():
            self._restore(key, witness)

    def _restore(self, key: str, witness: Witness) -> None:
        try:
            self._sizes[key] = shortlex(read_case(Path(witness.case)))
        except CaseError:
            # Its file was taken away between two runs; any case of the fault is then smaller than none.
            self._sizes[key] = (1 << 30, 0, b"")

    @property
    def distinct(self) -> int:
        """Faults told apart so far."""
        return len(self._witnesses)

    def readopt(self, witness: Witness) -> None:
        """Takes in a witness that was told before a kill and is not in the books: its batch is asked again, and
        counts it then.
        """
        key = fault_key(witness)
        if key not in self._witnesses:
            self._witnesses[key] = structs.replace(witness, seen=0)
            self._restore(key, witness)

    def note(self, result: Result) -> Iterator[Found]:
        """Takes in a batch; yields faults not seen before."""
        self.cases += result.cases
        self.mutated += result.mutants
        self.compared += result.compared
        self.planner_seconds += result.planner_seconds
        self.verdicts.update(result.verdicts)
        self.reasons.update(result.reasons)
        for counted in result.faults:
            yield from self._note(counted)

    def _note(self, counted: Counted) -> Iterator[Found]:
        key, case = counted.key, counted.case
        held = self._witnesses.get(key)
        if held is None and case is None:
            # A lane that took over a lost one's batch knows the fault from a later batch, which brings the case.
            self._caseless[key] += counted.seen
        elif held is None:
            assert case is not None
            seen = counted.seen + self._caseless.pop(key, 0)
            yield Found(witness=self._keep(key, case, counted.finding, seen, self.distinct))
        elif case is not None and shortlex(case) < self._sizes[key]:
            kept = self._keep(key, case, counted.finding, held.seen + counted.seen, held.number)
            if held.id != kept.id:
                self._store.drop_record(held.id, held.fingerprint)
        else:
            self._witnesses[key] = structs.replace(held, seen=held.seen + counted.seen)

    def _keep(self, key: str, case: Case, finding: Finding, seen: int, number: int) -> Witness:
        asked = self._asked
        self._store.keep_finding(case, finding, asked.contract, asked.unpatched, asked.patched)
        identity = case_id(case)
        self._sizes[key] = shortlex(case)
        witness = Witness(
            id=identity, fingerprint=finding.fingerprint, law=finding.law, verdict=finding.verdict,
            planner=finding.planner, summary=finding.summary, first_difference=finding.first_difference,
            case=str(self._store.case_path(identity)), layers=len(case.layers), seen=seen,
            known=self._known.covers(finding.fingerprint, finding.verdict), number=number,
            beside=finding.beside,
        )  # fmt: skip
        self._witnesses[key] = witness
        return witness

    def witnesses(self) -> tuple[Witness, ...]:
        """Findings that need attention first, then by how often they were seen."""
        return tuple(sorted(self._witnesses.values(), key=lambda w: (w.known, RANK[w.verdict], -w.seen, w.fingerprint)))

    def books(self) -> Books:
        """For storing."""
        return Books(
            cases=self.cases, mutated=self.mutated, compared=self.compared, planner_seconds=self.planner_seconds,
            verdicts=dict(self.verdicts), reasons=dict(self.reasons), witnesses=dict(self._witnesses),
        )  # fmt: skip
