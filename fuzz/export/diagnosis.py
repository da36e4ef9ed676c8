"""A *diagnosis* of a finding: what the planner answered, what was due, and who says so."""

from __future__ import annotations

from msgspec import Struct

from fuzz.export.second import Second, second_answer, twin_findings
from fuzz.export.serving import NoTrace, ServedAgain, served_again
from fuzz.minimise.asking import NEEDED, FocusedPair
from fuzz.minimise.neighbour import Variation
from fuzz.pair import Judged, Pair, PlannerInfo
from fuzz.replay.requests.checks import CHECKS
from oracles.case import Case, case_id
from oracles.compare import FAILING, Finding
from oracles.law import Contract
from oracles.plan import Outcome, Planned, Refused, owner_of
from oracles.reference import RuleSet, Unruled, expected_plan


class NothingFound(Exception):
    """The case shows no finding, or not the one asked for, with these planners."""


class Diagnosis(Struct, frozen=True, kw_only=True):
    """``planner`` is the one at fault, ``other`` the one beside it. ``expected`` is None where no one says, ``second``
    where the plan alone shows the finding. ``served`` is how requests showed a finding of theirs; ``no_script`` says
    why no script can show the finding.
    """

    case: Case
    finding: Finding
    contract: Contract
    obtained: Outcome
    counterpart: Outcome
    expected: Outcome | None
    expected_by: str
    planner: PlannerInfo
    other: PlannerInfo
    planner_module: str
    neighbour: Variation | None = None
    second: Second | None = None
    served: ServedAgain | None = None
    no_script: str = ""


def telling(finding: Finding) -> tuple[bool, int]:
    """By which of several findings a case is told, least first: a failing one before one fixed by the patch; then a
    law that says what is wrong before an exception, which may be its consequence, and before a comparison, which only
    says what differs.
    """
    compares = finding.law == "G7" or finding.law.startswith("reference.")
    return finding.verdict not in FAILING, 2 if compares else 1 if finding.error else 0


def choose_finding(findings: tuple[Finding, ...], fingerprint: str | None, identity: str) -> Finding:
    """The finding of that fingerprint, or the most telling one.

    Raises:
        NothingFound: there is none.
    """
    if fingerprint is not None:
        chosen = next((f for f in findings if f.fingerprint == fingerprint), None)
        if chosen is None:
            others = ", ".join(f.fingerprint for f in findings) or "none"
            raise NothingFound(f"{identity} does not show {fingerprint} with these planners (it shows {others})")
        return chosen
    if not findings:
        raise NothingFound(f"{identity} shows no finding with these planners")
    return min(findings, key=telling)


def find_again(pair: Pair, case: Case, fingerprint: str | None) -> tuple[Judged, Finding]:
    """Asks both planners once more, and other processes of theirs where the finding is not shown otherwise: one that a
    run saw between its lanes.

    Raises:
        NothingFound: the case does not show that finding.
        PlannerError: a planner cannot be started.
    """
    judged = FocusedPair(pair, None).ask(case)
    findings = judged.verdict.findings
    if fingerprint is not None and all(one.fingerprint != fingerprint for one in findings):
        findings += twin_findings(pair, case, (judged.unpatched, judged.patched), fingerprint)
    return judged, choose_finding(findings, fingerprint, case_id(case))


def diagnose(
    pair: Pair, case: Case, fingerprint: str | None, neighbour: Variation | None = None, *, for_script: bool = False
) -> Diagnosis:
    """Asks both planners once more and says what was due; ``for_script``: with what a script needs besides.

    Raises:
        NothingFound: the case does not show that finding.
        PlannerError: a planner cannot be started.
    """
    return diagnose_found(pair, *find_again(pair, case, fingerprint), neighbour, for_script=for_script)


def diagnose_found(
    pair: Pair, judged: Judged, finding: Finding, neighbour: Variation | None = None, *, for_script: bool = False
) -> Diagnosis:
    """As ``diagnose``, of what ``find_again`` gave."""
    case = judged.case
    unpatched_info, patched_info = pair.infos()
    at_fault, planner, other = pair.patched, patched_info, unpatched_info
    obtained, counterpart = judged.patched, judged.unpatched
    if finding.planner == "unpatched":
        at_fault, planner, other = pair.unpatched, unpatched_info, patched_info
        obtained, counterpart = counterpart, obtained
    served, no_script = None, ""
    if for_script and finding.law in CHECKS:
        try:
            served = served_again(at_fault, case, finding)
        except NoTrace as error:
            no_script = str(error)
    rules = pair.rulings()[finding.planner == "patched"].rules
    expected, said_by = _expected(case, finding, (obtained, counterpart), rules, pair.contract)
    second = second_answer(pair, at_fault, case, finding, obtained)
    if second is None and finding.law in NEEDED and not owner_of(obtained):
        raise NothingFound(f"{case_id(case)} does not show {finding.fingerprint} each time that it is asked")
    return Diagnosis(
        case=case, finding=finding, contract=pair.contract, obtained=obtained, counterpart=counterpart,
        expected=expected, expected_by=said_by, planner=planner, other=other,
        planner_module=at_fault.hello().planner_module, neighbour=neighbour, second=second,
        served=served, no_script=no_script,
    )  # fmt: skip


def _expected(
    case: Case, finding: Finding, outcomes: tuple[Outcome, Outcome], rules: RuleSet | None, contract: Contract
) -> tuple[Outcome | None, str]:
    """The other planner's answer where it is the good one; else what the rules say, where they speak of it."""
    obtained, counterpart = outcomes
    if finding.law == "G7" or (finding.verdict in ("fixed", "regression") and isinstance(counterpart, Planned)):
        return counterpart, "the other planner"
    if owner_of(obtained):
        return None, ""
    ruled = expected_plan(case, rules, contract) if rules is not None else Unruled("no rule set")
    if isinstance(ruled, Planned | Refused):
        return ruled, "the rules"
    return None, ""
