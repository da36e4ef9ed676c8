"""Minimising: from a case that shows a finding to the least case that shows the same one.

A *target* is what must stay: law, planner side, fingerprint and verdict. The untouched case is asked three times
first. Then passes run in order, each offering cases that are less (``order``); they are asked in batches, the least
that still shows the target becomes the best, and the passes begin again, until none helps. Answers are kept by case id.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from fuzz.minimise import fields, layers
from fuzz.minimise.asking import FocusedPair
from fuzz.minimise.catalogue import catalogue
from fuzz.minimise.layers import is_askable
from fuzz.minimise.neighbour import Variation, variations
from fuzz.minimise.order import Key, limits, order_key
from fuzz.minimise.palette import aside
from fuzz.pair import Pair, Pending
from oracles.case import Case, case_id
from oracles.compare import FAILING, Finding, Verdict

RUNS = 3
"""Times that the untouched case is asked; one answer that differs from the others makes it unstable."""

BATCHES = (4, 8, 16, 32)
"""Cases per batch: small while a pass is likely to succeed at once, larger while it is not."""

CATALOGUE_UP_TO = 4
"""A fault that still needs more layers than this is not found among cases of two."""

MAX_PAIRS = 2_000
"""Two changes at once are tried at the end, up to this many of each sort: six seconds of two warm planners."""

PASSES: tuple[tuple[str, fields.Pass], ...] = (
    ("sketches", layers.sketches),
    ("padded_alone", fields.padded_alone),
    ("drop_stages", layers.drop_stages),
    ("drop_classes", layers.drop_classes),
    ("lower_counts", layers.lower_counts),
    ("drop_layers", layers.drop_layers),
    ("memory_in_proportion", fields.memory_in_proportion),
    ("few_in_fitted_memory", fields.few_in_fitted_memory),
    ("merge_specs", fields.merge_specs),
    ("default_settings", fields.default_settings),
    ("default_fields", fields.default_fields),
    ("plain_specs", fields.plain_specs),
    ("drop_draft_marks", layers.drop_draft_marks),
    ("move_stages", layers.move_stages),
    ("plainer_kinds", fields.plainer_kinds),
    ("without_replication", fields.without_replication),
    ("plainer_states", fields.plainer_states),
    ("plainer_numbers", fields.plainer_numbers),
    ("fitted_memory", fields.fitted_memory),
    ("plainer_names", fields.plainer_names),
    ("align_specs", fields.align_specs),
    ("exchange", fields.exchange),
    ("sort_layers", layers.sort_layers),
    ("rename_layers", layers.rename_layers),
)
PAIRED: tuple[fields.Pass, ...] = (
    layers.drop_layers, layers.drop_draft_marks, fields.default_settings, fields.default_fields,
    fields.plainer_kinds, fields.plainer_numbers,
)  # fmt: skip
"""Passes whose changes are also tried two at a time."""


class NotShown(Exception):
    """The untouched case does not show the finding: says what it shows instead."""


class Unstable(Exception):
    """The untouched case shows the finding in some of its runs only."""


class Target(Struct, frozen=True, kw_only=True):
    """What a smaller case must still show."""

    fingerprint: str
    verdicts: frozenset[str]

    def among(self, verdict: Verdict) -> Finding | None:
        """The finding of this target in a verdict."""
        return next(
            (f for f in verdict.findings if f.fingerprint == self.fingerprint and f.verdict in self.verdicts), None
        )


class Better(Struct, frozen=True, kw_only=True):
    """A smaller case was found. ``by`` is the pass; ``asked`` and ``seconds`` are totals."""

    case: Case
    finding: Finding
    by: str
    asked: int
    seconds: float


class Minimal(Struct, frozen=True, kw_only=True):
    """The end: the least case found, and the nearest case that passes (None: none was found).

    ``complete``: no pass can make it smaller, and it was asked again.
    """

    case: Case
    finding: Finding
    neighbour: Variation | None
    complete: bool
    asked: int
    seconds: float


class _Batch(Struct, frozen=True, kw_only=True):
    """Cases offered together; ``pending`` is the question about those whose answer is not known yet."""

    cases: tuple[Case, ...]
    missing: tuple[Case, ...]
    pending: Pending | None


class Minimiser:
    """The search for the least case of one finding. ``law`` is its law where that is known: no other is asked for.

    Raises (on making one):
        NotShown, Unstable: the untouched case does not show the finding, or not always.
        PlannerError: a planner cannot be started.
    """

    def __init__(
        self, pair: Pair, case: Case, fingerprint: str, *, law: str | None = None, seconds: float | None = None
    ) -> None:
        self._begun = time.monotonic()
        self._stop_at = None if seconds is None else self._begun + seconds
        self._held: dict[str, Finding | None] = {}
        self._asked = 0
        self._limits = limits(case)
        self._pair: Pair = FocusedPair(pair, law)
        self.case, self.complete = case, False
        self.neighbour: Variation | None = None
        self.target, self.finding = self._confirm(fingerprint)
        self._pair = FocusedPair(pair, self.finding.law)
        self._key: Key = order_key(case)

    def run(self) -> Iterator[Better]:
        """Yields each smaller case as it is found; ``minimal`` says how it ended."""
        while not self._late():
            before = self._key
            for name, one in PASSES:
                while (found := self._first(name, one(self.case))) is not None:
                    yield found
            if self._key == before:
                found = self._from_catalogue() or self._in_pairs()
                if found is None:
                    self.complete = not self._late() and self._still_shown()
                    break
                yield found
        self.neighbour = self.passing_neighbour()

    def minimal(self) -> Minimal:
        """The best so far."""
        return Minimal(
            case=self.case, finding=self.finding, neighbour=self.neighbour, complete=self.complete,
            asked=self._asked, seconds=self._seconds(),
        )  # fmt: skip

    def _from_catalogue(self) -> Better | None:
        """The plainest cases of all, asked outright."""
        if len(self.case.layers) > CATALOGUE_UP_TO:
            return None
        return self._first("catalogue", self._smaller(catalogue(self.case, self._key)))

    def _in_pairs(self) -> Better | None:
        """Two changes at once, for faults that need two fields to move together."""

        def pairs() -> Iterator[Case]:
            for step in steps:
                for one in PAIRED:
                    yield from one(step)

        def beside() -> Iterator[Case]:
            return (other for step in steps if order_key(step) < self._key for other in aside(step))

        steps = [case for one in PAIRED for case in one(self.case)]
        offered = (itertools.islice(self._smaller(cases), MAX_PAIRS) for cases in (beside(), pairs()))
        return self._first("two changes", itertools.chain.from_iterable(offered))

    def _first(self, name: str, offered: Iterator[Case]) -> Better | None:
        """The least case of the first batch in which one shows the target."""
        for batch, findings in self._answered(self._smaller(offered)):
            shown = [(order_key(c), c, f) for c, f in zip(batch, findings, strict=True) if f is not None]
            if shown:
                self._key, self.case, self.finding = min(shown, key=lambda row: row[0])
                return Better(case=self.case, finding=self.finding, by=name, asked=self._asked, seconds=self._seconds())
        return None

    def _answered(self, cases: Iterator[Case]) -> Iterator[tuple[tuple[Case, ...], list[Finding | None]]]:
        """Batches of cases with what each shows; the planners work on the next one while this one is judged."""
        sizes = itertools.chain(BATCHES, itertools.repeat(BATCHES[-1]))
        queue: deque[_Batch] = deque()
        try:
            while True:
                while len(queue) < 2 and not self._late():
                    batch = tuple(itertools.islice(cases, next(sizes)))
                    if not batch:
                        break
                    queue.append(self._submit(batch))
                if not queue:
                    return
                taken = queue.popleft()
                self._collect(taken)
                yield taken.cases, [self._held[case_id(case)] for case in taken.cases]
        finally:
            for left in queue:  # asked already: its answers are worth keeping
                self._collect(left)

    def _submit(self, batch: tuple[Case, ...]) -> _Batch:
        missing = tuple(case for case in batch if case_id(case) not in self._held)
        self._asked += len(missing)
        return _Batch(cases=batch, missing=missing, pending=self._pair.submit(missing) if missing else None)

    def _collect(self, batch: _Batch) -> None:
        if batch.pending is not None:
            for case, judged in zip(batch.missing, self._pair.collect(batch.pending), strict=True):
                self._held[case_id(case)] = self.target.among(judged.verdict)

    def _smaller(self, offered: Iterator[Case]) -> Iterator[Case]:
        """Of the offered cases those that are less than the best, can be asked, and were not asked in vain."""
        seen: set[str] = set()
        for case in offered:
            if order_key(case) >= self._key or not limits(case) <= self._limits:
                continue
            identity = case_id(case)
            if identity in seen or self._held.get(identity, self) is None:
                continue
            seen.add(identity)
            if is_askable(case):
                yield case

    def _verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        self._asked += len(cases)
        return [judged.verdict for judged in self._pair.collect(self._pair.submit(cases))]

    def _confirm(self, fingerprint: str) -> tuple[Target, Finding]:
        verdicts = self._verdicts([self.case] * RUNS)
        found = [next((f for f in v.findings if f.fingerprint == fingerprint), None) for v in verdicts]
        shown = [finding for finding in found if finding is not None]
        identity = case_id(self.case)
        if not shown:
            others = ", ".join(f"{f.law} {f.fingerprint} ({f.planner})" for f in verdicts[0].findings) or "no finding"
            raise NotShown(f"{identity} does not show {fingerprint} with these planners, but {others}")
        if len(shown) < len(found):
            raise Unstable(f"{identity} shows {fingerprint} in {len(shown)} of {len(found)} runs only")
        if len({f.verdict for f in shown}) > 1:
            raise Unstable(f"{identity} shows {fingerprint} with verdicts that change from run to run")
        verdict = shown[0].verdict
        # A dispute is two faults in one case; a smaller case that keeps one of them says more.
        kept = FAILING if verdict == "dispute" else frozenset({verdict})
        return Target(fingerprint=fingerprint, verdicts=kept), shown[0]

    def _still_shown(self) -> bool:
        return all(self.target.among(verdict) is not None for verdict in self._verdicts([self.case] * RUNS))

    def passing_neighbour(self) -> Variation | None:
        """The first variation that shows no failing finding; else the first that does not show this one."""
        offered = [v for v in variations(self.case) if limits(v.case) <= self._limits and is_askable(v.case)]
        other: Variation | None = None
        for start in range(0, len(offered), BATCHES[-1]):
            batch = offered[start : start + BATCHES[-1]]
            for variation, verdict in zip(batch, self._verdicts([v.case for v in batch]), strict=True):
                if verdict.name in ("agree", "fixed") and not any(
                    f.fingerprint == self.target.fingerprint for f in verdict.findings
                ):
                    if not verdict.findings:
                        return variation
                    other = other or variation
        return other

    def _late(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def _seconds(self) -> float:
        return round(time.monotonic() - self._begun, 3)


def minimise(
    pair: Pair, case: Case, fingerprint: str, *,
    seconds: float | None = None, on_better: Callable[[Better], None] = lambda _: None,
) -> Minimal:  # fmt: skip
    """The least case that shows the finding ``fingerprint`` as ``case`` does, with the planners of ``pair``.

    ``on_better`` is called with each smaller case as it is found. After ``seconds`` the best so far is returned.

    Raises:
        NotShown: the untouched case does not show the finding.
        Unstable: it shows it in some runs only.
        PlannerError: a planner cannot be started.
    """
    search = Minimiser(pair, case, fingerprint, seconds=seconds)
    for better in search.run():
        on_better(better)
    return search.minimal()


__all__ = ["Better", "Minimal", "Minimiser", "NotShown", "Target", "Unstable", "minimise"]
