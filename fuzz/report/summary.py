"""What a run has come to, whole or interrupted: the one thing that every report of the end is made from."""

from __future__ import annotations

from msgspec import Struct, structs

from fuzz.campaign.events import RANK, Finished, Found, Progressed, Report, Started, Witness, gated
from fuzz.known import Known
from fuzz.pair import PlannerInfo
from fuzz.replay.requests.checks import CHECKS
from oracles.compare import FAILING, VERDICTS
from oracles.law import LAWS, Contract

WORDS = {
    "agree": "agree", "fixed": "fixed by the patch", "regression": "regression", "unfixed": "unfixed",
    "dispute": "dispute", "inconclusive": "inconclusive",
}  # fmt: skip
"""Verdicts as people read them."""

NO_LAW = {
    "P7": (
        "The tensors that a worker makes lie on the pages that the plan gives to their layers.",
        "A tensor that lies elsewhere overwrites what another layer keeps.",
    ),
    "alive": ("A planner answers, whatever it is asked.", "The engine that asks dies or hangs with it."),
    "reference": (
        "A plan is what the planner's own rules say.",
        "Workers and scheduler count on them; what follows none of them is a slip, or a change to be told.",
    ),
}
"""What is checked besides the laws, and why."""


class Summary(Struct, frozen=True, kw_only=True):
    """A run so far; ``complete`` is False when it was interrupted. ``unmatched`` are entries of known.toml whose fault
    was looked for and is gone. A planted defect that was not found makes ``canary_survived``, a time too short for
    anything but the corpus ``nothing_drawn``.
    """

    contract: Contract = "native"
    seed: int = 0
    cases: int = 0
    seconds: float = 0.0
    verdicts: dict[str, int] = {}
    inconclusive: dict[str, int] = {}
    findings: tuple[Witness, ...] = ()
    known: tuple[Known, ...] = ()
    planners: tuple[PlannerInfo, ...] = ()
    complete: bool = False
    unmatched: tuple[Known, ...] = ()
    canary_survived: bool = False
    nothing_drawn: bool = False
    gate: bool = False

    @property
    def open(self) -> list[Witness]:
        """Findings that need someone's attention."""
        return [w for w in self.findings if w.verdict in FAILING and not w.known]

    @property
    def minded(self) -> list[Witness]:
        """Those of them that a run fails for: to a gate, what the unpatched planner does too is none."""
        if not self.gate:
            return self.open
        return [w for w in gated(self.findings) if not w.known]

    @property
    def fixed(self) -> list[Witness]:
        """Findings that only the unpatched planner has."""
        return [w for w in self.findings if w.verdict not in FAILING and not w.known]

    @property
    def listed(self) -> list[Witness]:
        """Findings that known.toml lists, one for each of its entries, whatever their verdicts."""
        merged: dict[str, Witness] = {}
        for witness in self.findings:
            if witness.known:
                first = merged.get(witness.fingerprint)
                merged[witness.fingerprint] = (
                    witness if first is None else structs.replace(first, seen=first.seen + witness.seen)
                )
        return list(merged.values())


def summary_of(report: Report) -> Summary:
    """A run that has ended, whole or early."""
    return Summary(
        contract=report.contract, seed=report.seed, cases=report.cases, seconds=report.seconds,
        verdicts=report.verdicts, inconclusive=report.inconclusive, findings=report.findings, known=report.known,
        planners=report.planners, complete=not report.interrupted, unmatched=report.unmatched,
        canary_survived=report.canary_survived, nothing_drawn=report.nothing_drawn, gate=report.gate,
    )  # fmt: skip


class Gathering:
    """Gathers events into a summary."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._progressed: Progressed | None = None
        self._finished: Finished | None = None
        self._found: dict[tuple[str, str], Witness] = {}

    def take(self, event: object) -> None:
        """Notes an event; others than the four it knows change nothing."""
        if isinstance(event, Found):
            witness = event.witness
            self._found[witness.fingerprint, witness.verdict] = witness
        elif isinstance(event, Progressed):
            self._progressed = event
        elif isinstance(event, Started):
            self._started = event
        elif isinstance(event, Finished):
            self._finished = event

    def summary(self) -> Summary:
        """The run as far as it has come."""
        if self._finished is not None:
            return summary_of(self._finished.report)
        started, progressed = self._started, self._progressed
        return Summary(
            contract=started.contract if started else "native",
            seed=started.seed if started else 0,
            cases=progressed.cases if progressed else 0,
            seconds=round(progressed.seconds, 3) if progressed else 0.0,
            verdicts=progressed.verdicts if progressed else dict.fromkeys(VERDICTS, 0),
            findings=tuple(sorted(
                self._found.values(), key=lambda w: (w.known, RANK.get(w.verdict, len(RANK)), w.fingerprint)
            )),
            planners=started.planners if started else (),
        )  # fmt: skip


def law_text(law: str) -> str:
    """What a law says, or a comparison that is none."""
    if law in LAWS or law in CHECKS:
        return (LAWS.get(law) or CHECKS[law]).text
    return NO_LAW.get(law.partition(".")[0], (law, ""))[0]


def law_reason(law: str) -> str:
    """Why a law holds, or what a comparison is made for."""
    if law in LAWS or law in CHECKS:
        return (LAWS.get(law) or CHECKS[law]).reason
    return NO_LAW.get(law.partition(".")[0], (law, ""))[1]


def reason_known(summary: Summary, witness: Witness) -> str:
    """Why known.toml lists a finding. An interrupted run has only the fact."""
    return next((k.reason for k in summary.known if k.fingerprint == witness.fingerprint), "listed in known.toml")


def conclusion(summary: Summary) -> str:
    """One sentence for the whole run."""
    if summary.canary_survived:
        return "The run does not count: the defect planted in it was not found."
    early = "" if summary.complete else "Interrupted: "
    if summary.minded:
        count = len(summary.minded)
        return f"{early}{count} {'finding needs' if count == 1 else 'findings need'} attention."
    if summary.nothing_drawn:
        why = ", the corpus took all the time" if summary.cases else ""
        return f"The run does not count: no case was drawn{why}. Give it more with --time."
    if summary.cases == 0:
        return f"{early}No case was planned: nothing is known."
    if summary.open:
        return f"{early}No regression: the {len(summary.open)} findings are the unpatched planner's too."
    if summary.unmatched:
        count = len(summary.unmatched)
        return f"{early}{count} {'entry' if count == 1 else 'entries'} of known.toml can go: the fault is gone."
    fixed = len({w.fingerprint for w in summary.fixed})
    gain = f" and fixes {fixed} {'kind' if fixed == 1 else 'kinds'} of fault" if fixed else ""
    listed = len({w.fingerprint for w in summary.listed if w.verdict in FAILING})
    keeps = f"breaks no law beyond {listed} known faults" if listed else "keeps every law checked"
    return f"{early}Nothing new was found: the patched planner {keeps}{gain}."


def visible(text: str) -> str:
    """Text with line breaks as spaces and with what does not print, or turns text around, written as escapes."""
    return "".join(c if c.isprintable() else " " if c in "\n\r\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
