"""Which rule each planner took for a case, and where the two part.

The rules are our own (``oracles.reference``), followed on the case under the contract of each planner; the plan
itself then shows whether the planner did as they say. vLLM is not looked into.
"""

from __future__ import annotations

from msgspec import Struct
from rich.console import Console
from rich.markup import escape

from fuzz.export.diagnosis import Diagnosis
from fuzz.export.render import expected_words, outcome_words, settings_words
from fuzz.pair import Pair
from fuzz.planners.process import Planner
from oracles.case import AttentionSpec, Case, HiddenStateSpec, Settings, case_id, is_mixed, mode_of
from oracles.compare import outcome_difference
from oracles.law import LAWS, Contract
from oracles.plan import Outcome, Planned, Refused, owner_of, plan_of
from oracles.reference import RuleSet, Unruled, compare_with, expected_plan
from oracles.reference.grouping import (
    BLOCK_OUTERMOST,
    RefusedError,
    on_one_page,
    with_windows_kept_whole,
    without_hybrid_manager,
)
from oracles.reference.packing import LayerMap
from oracles.reference.plan import layer_map
from oracles.reference.specs import is_uniform, merged, page


class Step(Struct, frozen=True, kw_only=True):
    """One rule that decided something: its name and why it applied. ``part`` is empty for the whole model."""

    rule: str
    why: str
    part: str = ""


class Told(Struct, frozen=True, kw_only=True):
    """One planner: how planning ended, the rules that apply to it, and whether it did as they say."""

    role: str
    address: str
    version: str
    contract: Contract
    outcome: str
    steps: tuple[Step, ...]
    follows_rules: str


class Explanation(Struct, frozen=True, kw_only=True):
    """What ``kvfuzz explain --json`` prints."""

    id: str
    finding: str
    law: str
    planners: tuple[Told, ...]
    first_difference: str
    due: str
    neighbour: str


def explain(pair: Pair, diagnosis: Diagnosis) -> Explanation:
    """Both planners' ways through one case, and what separates them."""
    outcomes = [diagnosis.counterpart, diagnosis.obtained]
    if diagnosis.finding.planner == "unpatched":
        outcomes.reverse()
    told = tuple(
        _tell(role, planner, ruling.rules, diagnosis.case, outcome)
        for role, planner, ruling, outcome in zip(
            ("unpatched", "patched"), (pair.unpatched, pair.patched), pair.rulings(), outcomes, strict=True
        )
    )
    found = (
        outcome_difference(*outcomes) if all(isinstance(outcome, Planned | Refused) for outcome in outcomes) else None
    )
    law = LAWS.get(diagnosis.finding.law)
    return Explanation(
        id=case_id(diagnosis.case),
        finding=f"{diagnosis.finding.law} {diagnosis.finding.fingerprint}, {diagnosis.finding.planner} planner "
        f"({diagnosis.finding.verdict}): {diagnosis.finding.summary}",
        law=law.text if law is not None else "",
        planners=told,
        first_difference=f"{found.path}: {found.expected} unpatched, {found.obtained} patched" if found else "",
        due=expected_words(diagnosis),
        neighbour=diagnosis.neighbour.words if diagnosis.neighbour is not None else "",
    )


def _tell(role: str, planner: Planner, rules: RuleSet | None, case: Case, outcome: Outcome) -> Told:
    hello, contract = planner.hello(), planner.launch.contract or "native"
    if rules is None:
        steps: tuple[Step, ...] = ()
        follows = f"no rules are known for vLLM {hello.version}"
    else:
        steps = rule_steps(case, rules, contract)
        follows = _follows(case, rules, contract, outcome)
    return Told(
        role=role, address=planner.address, version=hello.version, contract=contract,
        outcome=outcome_words(outcome), steps=steps, follows_rules=follows,
    )  # fmt: skip


def _follows(case: Case, rules: RuleSet, contract: Contract, outcome: Outcome) -> str:
    expected = expected_plan(case, rules, contract)
    if owner := owner_of(outcome):
        return f"no rule: {owner} groups"
    if isinstance(expected, Unruled):
        return f"no rule: {expected.reason}"
    if plan_of(outcome) is None:
        return "no plan to compare with the rules"
    breaches = compare_with(expected, outcome)
    return f"not as the rules say: {breaches[0].detail}" if breaches else "as the rules say"


def rule_steps(case: Case, rules: RuleSet, contract: Contract) -> tuple[Step, ...]:
    """The rules that apply to ``case`` in turn; under ``isolate`` each part of a mixed case has its own."""
    layers = layer_map(case)
    if contract == "native" or not is_mixed(case):
        return tuple(_steps(layers, case.settings, rules, ""))
    replicated = {name: spec for name, spec in layers.items() if mode_of(spec) == "replicated"}
    sharded = {name: spec for name, spec in layers.items() if name not in replicated}
    return (
        Step(rule="split by mode", why=f"{len(sharded)} sharded or recurrent and {len(replicated)} replicated layers"),
        *_steps(sharded, case.settings, rules, "sharded"),
        *_steps(replicated, case.settings, rules, "replicated"),
    )


def _steps(layers: LayerMap, settings: Settings, rules: RuleSet, part: str) -> list[Step]:
    taken: list[Step] = []

    def take(rule: str, why: str) -> None:
        taken.append(Step(rule=rule, why=why, part=part))

    if not settings.hybrid_manager:
        try:
            made = without_hybrid_manager(layers, rules)
        except RefusedError as error:
            take("one kind", f"refused: {error}")
            return taken
        take(
            "one kind",
            "the hybrid manager is off; " + ("local layers become full" if made != layers else "nothing to convert"),
        )
        layers = made
    specs = list(dict.fromkeys(layers.values()))
    pages = sorted({page(spec) for spec in specs if not isinstance(spec, HiddenStateSpec)})
    if not layers:
        take("no layers", "there is nothing to cache")
    elif _merges(layers, rules):
        take("uniform", "all specs merge into one: one plain group")
    elif is_uniform(specs, rules):
        take("uniform type", "equal blocks, mode and token slots: one group that keeps a spec for each layer")
    else:
        _mixed_steps(layers, settings, rules, pages, take)
    return taken


def _merges(layers: LayerMap, rules: RuleSet) -> bool:
    return merged(list(dict.fromkeys(layers.values())), rules) is not None


def _mixed_steps(layers: LayerMap, settings: Settings, rules: RuleSet, pages: list[int], take: object) -> None:
    assert callable(take)
    hidden = [name for name, spec in layers.items() if isinstance(spec, HiddenStateSpec)]
    others = {name: spec for name, spec in layers.items() if name not in hidden}
    if hidden:
        take("hidden state", f"{len(hidden)} layers are set aside, a group for each")
    shown = ", ".join(f"{size:,}" for size in pages)
    if not others or (rules.generation == "packed" and settings.layout in BLOCK_OUTERMOST and len(pages) > 1):
        take("packed", f"{settings.layout} stores blocks outermost and pages differ: {shown} bytes")
        return
    if len(pages) > 1:
        try:
            others = on_one_page(others, rules)
        except RefusedError as error:
            take("page unification", f"pages of {shown} bytes cannot be made equal: {error}")
            if with_windows_kept_whole(layers, rules) is not None:
                take("fallback", "windows beside MLA are kept whole: one group")
            return
        take("page unification", f"pages of {shown} bytes are raised to {pages[-1]:,} ({_means(others, layers)})")
    take("equal counts", "equal specs are collected, and groups get as many layers as the smallest collection allows")


def _means(raised: LayerMap, before: LayerMap) -> str:
    scaled = sum(raised[name].block_size != before[name].block_size for name in raised)
    padded = sum(raised[name].block_size == before[name].block_size and raised[name] != before[name] for name in raised)
    attention = sum(isinstance(spec, AttentionSpec) for spec in raised.values())
    return f"{scaled} of {attention} attention layers by their block, {padded} layers by padding"


def show_explanation(told: Explanation, case: Case, console: Console) -> None:
    """The explanation for a person."""
    console.print(f"[bold]{told.id}[/] {escape(told.finding)}", soft_wrap=True)
    if told.law:
        console.print(f"  [dim]law: {escape(told.law)}[/]", soft_wrap=True)
    console.print(f"  [dim]{escape(settings_words(case.settings))}[/]", soft_wrap=True)
    for one in told.planners:
        console.print(f"\n[bold]{one.role}[/] {escape(one.address)} (vLLM {escape(one.version)}, {one.contract})")
        for number, step in enumerate(one.steps, 1):
            part = f" [dim]({step.part} part)[/]" if step.part else ""
            console.print(f"  {number}. [cyan]{step.rule}[/]{part}: {escape(step.why)}", soft_wrap=True)
        console.print(f"  → {escape(one.outcome)}; {escape(one.follows_rules)}", soft_wrap=True)
    console.print()
    if told.first_difference:
        console.print(f"first difference  {escape(told.first_difference)}", soft_wrap=True)
    console.print(f"due               {escape(told.due)}", soft_wrap=True)
    if told.neighbour:
        console.print(f"it passes with    {escape(told.neighbour)}", soft_wrap=True)
