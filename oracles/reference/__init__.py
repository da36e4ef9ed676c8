"""The *reference*: an independent planner, written from the rules in VLLM.md 3 to 5.

``rules_for`` chooses the rule set of a planner from its hello; ``expected_plan`` plans a case by it;
``compare_with`` tells how a planner's outcome differs from that. Clarity comes before speed.
"""

from oracles.reference.compare import compare_with, reference_breaches, refusals_by
from oracles.reference.plan import Unruled, expected_plan
from oracles.reference.rules import RULE_SETS, RuleSet, adapted, rules_for

__all__ = [
    "RULE_SETS",
    "RuleSet",
    "Unruled",
    "adapted",
    "compare_with",
    "expected_plan",
    "reference_breaches",
    "refusals_by",
    "rules_for",
]
