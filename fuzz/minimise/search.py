"""Minimising: from a case that shows a finding to the least case that shows the same one.

A *target* is what must stay: law, planner side, fingerprint and verdict. The untouched case is asked three times
first. Then passes run in order, each offering cases that are less (``order``); they are asked in batches, the least
that still shows the target becomes the best, and the passes begin again, until none helps. Answers are kept by case id.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, ValidationError, json

from fuzz.minimise import fields, layers
from fuzz.minimise.order import Key, limits, order_key
from fuzz.pair import TWICE_EVERY, Pair
from oracles.case import Case, CaseError, Provenance, case_id, check_case
from oracles.compare import FAILING, Finding, Verdict

RUNS = 3
"""Times that the untouched case is asked; one answer that differs from the others makes it unstable."""

BATCHES = (4, 8, 16, 32)
"""Cases per batch: small while a pass is likely to succeed at once, larger while it is not."""

MAX_PAIRS = 800
"""Two changes at once are tried at the end, up to this many: about five seconds of two warm planners."""

PASSES: tuple[tuple[str, fields.Pass], ...] = (
    ("sketches", layers.sketches),
    ("padded_alone", fields.padded_alone),
    ("drop_stages", layers.drop_stages),
    ("drop_classes", layers.drop_classes),
    ("lower_counts", layers.lower_counts),
    ("drop_layers", layers.drop_layers),
    ("merge_specs", fields.merge_specs),
    ("default_settings", fields.default_settings),
    ("default_fields", fields.default_fields),
    ("plain_specs", fields.plain_specs),
    ("drop_draft_marks", layers.drop_draft_marks),
    ("move_stages", layers.move_stages),
    ("plainer_kinds", fields.plainer_kinds),
    ("plainer_states", fields.plainer_states),
    ("plainer_numbers", fields.plainer_numbers),
    ("align_specs", fields.align_specs),
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
    """The end: the least case found. ``complete``: no pass can make it smaller, and it was asked again."""

    case: Case
    finding: Finding
    complete: bool
    asked: int
    seconds: float


class Minimiser:
    """The search for the least case of one finding."""

    def __init__(self, pair: Pair, case: Case, fingerprint: str, *, seconds: float | None = None) -> None:
        self._pair = pair
        self._begun = time.monotonic()
        self._stop_at = None if seconds is None else self._begun + seconds
        self._held: dict[str, Finding | None] = {}
        self._asked = 0
        self._limits = limits(case)
        self.case = case
        self.target, self.finding = self._confirm(case, fingerprint)
        self._key: Key = order_key(case)

    def run(self) -> Iterator[Better]:
        """Yields each smaller case as it is found; ``minimal`` says how it ended."""
        self.complete = False
        while not self._late():
            before = self._key
            for name, one in PASSES:
                while (found := self._first(name, one(self.case))) is not None:
                    yield found
            if self._key == before:
                found = self._in_pairs()
                if found is None:
                    self.complete = not self._late() and self._still_shown()
                    return
                yield found

    def minimal(self) -> Minimal:
        """The best so far."""
        return Minimal(
            case=self.case, finding=self.finding, complete=self.complete, asked=self._asked, seconds=self._seconds()
        )

    def _in_pairs(self) -> Better | None:
        """Two changes at once, for faults that need two fields to move together."""

        def pairs() -> Iterator[Case]:
            steps = [case for one in PAIRED for case in one(self.case)]
            for step in steps:
                for one in PAIRED:
                    yield from one(step)

        return self._first("two changes", itertools.islice(self._smaller(pairs()), MAX_PAIRS))

    def _first(self, name: str, offered: Iterator[Case]) -> Better | None:
        """The least case of the first batch in which one shows the target."""
        smaller = self._smaller(offered)
        for size in itertools.chain(BATCHES, itertools.repeat(BATCHES[-1])):
            batch = list(itertools.islice(smaller, size))
            if not batch or self._late():
                return None
            shown = [(order_key(c), c, f) for c, f in zip(batch, self._ask(batch), strict=True) if f is not None]
            if shown:
                self._key, self.case, self.finding = min(shown, key=lambda row: row[0])
                return Better(
                    case=self.case, finding=self.finding, by=name, asked=self._asked, seconds=self._seconds()
                )
        return None

    def _smaller(self, offered: Iterator[Case]) -> Iterator[Case]:
        """Of the offered cases those that are less than the best, can be asked, and were not asked before."""
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

    def _ask(self, cases: Sequence[Case]) -> list[Finding | None]:
        """Whether each case shows the target; kept answers are not asked for again."""
        missing = [case for case in cases if case_id(case) not in self._held]
        for case, verdict in zip(missing, self._verdicts(missing), strict=True):
            self._held[case_id(case)] = self.target.among(verdict)
        return [self._held[case_id(case)] for case in cases]

    def _verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        self._asked += len(cases)
        if not cases:
            return []
        return [judged.verdict for judged in self._pair.collect(self._pair.submit(cases))]

    def _confirm(self, case: Case, fingerprint: str) -> tuple[Target, Finding]:
        verdicts = self._verdicts([case] * max(RUNS, TWICE_EVERY))
        found = [next((f for f in v.findings if f.fingerprint == fingerprint), None) for v in verdicts]
        shown = [finding for finding in found if finding is not None]
        if not shown:
            others = ", ".join(f"{f.law} {f.fingerprint} ({f.planner})" for f in verdicts[0].findings) or "no finding"
            raise NotShown(f"{case_id(case)} does not show {fingerprint} with these planners, but {others}")
        if shown[0].law != "G9" and len(shown) < len(found):
            raise Unstable(f"{case_id(case)} shows {fingerprint} in {len(shown)} of {len(found)} runs only")
        if len({f.verdict for f in shown}) > 1:
            raise Unstable(f"{case_id(case)} shows {fingerprint} with verdicts that change from run to run")
        verdict = shown[0].verdict
        # A dispute is two faults in one case; a smaller case that keeps one of them says more.
        kept = FAILING if verdict == "dispute" else frozenset({verdict})
        return Target(fingerprint=fingerprint, verdicts=frozenset(kept)), shown[0]

    def _still_shown(self) -> bool:
        verdicts = self._verdicts([self.case] * RUNS)
        return all(self.target.among(verdict) is not None for verdict in verdicts)

    def _late(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def shows(self, cases: Sequence[Case]) -> list[Finding | None]:
        """Whether each of ``cases`` shows the target. Raises PlannerError."""
        return self._ask(cases)


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


def is_askable(case: Case) -> bool:
    """Whether ``case`` is one that a case file could hold; passes may offer others."""
    try:
        check_case(case)
        json.decode(json.encode(case), type=Case)
    except (CaseError, ValidationError):
        return False
    return True


__all__ = ["Better", "Minimal", "Minimiser", "NotShown", "Provenance", "Target", "Unstable", "minimise"]
