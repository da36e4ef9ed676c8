"""Minimises what a run found: the events pass through, and the last one then tells of the least cases."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import structs

from fuzz.campaign.events import Event, Finished, Minimised, Minimising, Witness
from fuzz.case_files import read_case
from fuzz.minimise.search import Minimiser, NotShown, Unstable
from fuzz.pair import Pair
from fuzz.planners.process import PlannerError
from fuzz.store import Store
from oracles.case import CaseError, case_id
from oracles.compare import FAILING

AT_MOST = 3
"""Findings minimised after a run, the gravest first; `kvfuzz minimise` does the others."""

SECONDS = 20.0
"""For each of them. Most need less."""


def with_minimal(
    events: Iterable[Event], open_pair: Callable[[], Pair], store: Store, interrupted: Callable[[], bool]
) -> Iterator[Event]:
    """The same events; findings of the last one that need attention come with their least case, which is stored."""
    for event in events:
        if not isinstance(event, Finished) or event.report.interrupted:
            yield event
            continue
        wanted = [w for w in event.report.findings if w.verdict in FAILING and not w.known][:AT_MOST]
        if wanted:
            # The run is over and its reports must not be lost with what follows.
            yield event
            yield Minimising(findings=len(wanted), seconds=SECONDS)
        smaller: dict[tuple[str, str], Witness] = {}
        for before, after in _minimised(wanted, open_pair, store, interrupted):
            smaller[before.fingerprint, before.verdict] = after
            yield Minimised(witness=after, layers_before=before.layers)
        findings = tuple(smaller.get((w.fingerprint, w.verdict), w) for w in event.report.findings)
        yield Finished(report=structs.replace(event.report, findings=findings))


def _minimised(
    wanted: list[Witness], open_pair: Callable[[], Pair], store: Store, interrupted: Callable[[], bool]
) -> Iterator[tuple[Witness, Witness]]:
    if not wanted:
        return
    pair = open_pair()
    try:
        pair.start()
        for witness in wanted:
            if interrupted():
                return
            yield witness, _least(witness, pair, store, interrupted)
    except PlannerError:
        return  # the findings stand as they are; the run itself is over
    except Exception:
        # A fault of ours: the report must not be lost with it.
        print("Minimising failed, the findings stand. This is a fault of kvfuzz: please report it.", file=sys.stderr)
        traceback.print_exc()
    finally:
        pair.close()


def _least(witness: Witness, pair: Pair, store: Store, interrupted: Callable[[], bool]) -> Witness:
    """The witness with the least case found in time; itself where the finding does not stand still."""
    try:
        case = read_case(Path(witness.case))
        search = Minimiser(pair, case, witness.fingerprint, law=witness.law, seconds=SECONDS)
    except NotShown:
        return structs.replace(witness, summary=f"{witness.summary} (not shown when asked again)")
    except Unstable:
        return structs.replace(witness, summary=f"{witness.summary} (unstable: not shown every time)")
    except CaseError:
        return witness
    for better in search.run():
        store.keep_finding(better.case, better.finding, pair.contract, pair.unpatched.address, pair.patched.address)
        if interrupted():
            break
    found = search.minimal()
    identity = case_id(found.case)
    return structs.replace(
        witness, id=identity, case=str(store.case_path(identity)), layers=len(found.case.layers),
        summary=found.finding.summary, first_difference=found.finding.first_difference, beside=found.finding.beside,
    )  # fmt: skip
