"""What reports show beside a finding: its case, and what both planners say to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from fuzz.campaign.batches import BATCH
from fuzz.campaign.events import Witness
from fuzz.pair import Pair
from fuzz.planners.process import PlannerError
from fuzz.store import Store
from oracles.case import Case, CaseError
from oracles.plan import Outcome

MAX_DETAILS = 200
"""Cases asked again for one report; a run with more findings has its first ones drawn, the gravest."""

DETAIL_SECONDS = 60.0
"""No further case is asked after this: cases that kill or hang a planner take seconds each."""


class Detail(Struct, frozen=True, kw_only=True):
    """The case of a finding, with the outcomes of both planners."""

    case: Case
    unpatched: Outcome
    patched: Outcome


def details_for(pair: Pair, findings: Iterable[Witness], store: Store) -> dict[str, Detail]:
    """Asks both planners the case of each finding again; by case id, for at most ``MAX_DETAILS`` cases.

    A case that the store has lost is left out. So are all that come after a planner that does not start again: a
    report with some drawings missing is worth more than none.
    """
    stop_at = time.monotonic() + DETAIL_SECONDS
    identities = list(dict.fromkeys(w.id for w in findings))[:MAX_DETAILS]
    cases = [(identity, case) for identity in identities if (case := _load(store, identity)) is not None]
    details: dict[str, Detail] = {}
    for at in range(0, len(cases), BATCH):
        if time.monotonic() > stop_at:
            break
        batch = cases[at : at + BATCH]
        try:
            for (identity, case), judged in zip(batch, pair.collect(pair.submit([c for _, c in batch])), strict=True):
                details[identity] = Detail(case=case, unpatched=judged.unpatched, patched=judged.patched)
        except PlannerError:
            break
    return details


def details_of(open_pair: Callable[[], Pair], findings: Sequence[Witness], store: Store) -> dict[str, Detail]:
    """The same from a pair that is opened for the purpose, and not at all when there is nothing to ask."""
    if not findings:
        return {}
    pair = open_pair()
    try:
        pair.start()
        return details_for(pair, findings, store)
    except PlannerError:
        return {}
    finally:
        pair.close()


def _load(store: Store, identity: str) -> Case | None:
    try:
        return store.load(identity)
    except CaseError:
        return None
