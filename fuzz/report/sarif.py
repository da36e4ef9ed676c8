"""The failing findings of a run as SARIF 2.1.0, for code scanning.

A rule is a law or a comparison; a result is a finding, placed at the planner's source file because a fault has no line
of its own; its fingerprint lets a scanner follow it from run to run. Known findings are suppressed results.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec
from packaging.version import InvalidVersion, Version

from fuzz.campaign.events import Witness
from fuzz.report.summary import Summary, law_reason, law_text, reason_known, visible
from oracles.compare import FAILING
from oracles.law import LAWS

FINGERPRINT = "kvfuzz/v1"
"""Name of the partial fingerprint; its number rises when fingerprints are made in another way."""

_LEVELS = {"regression": "error", "dispute": "error", "unfixed": "warning"}

_MOVED = Version("0.33")
"""vLLM's planner has a module of its own from here on."""


def render(summary: Summary, replay_arguments: str = "") -> str:
    """The log, as one JSON document."""
    failing = [w for w in summary.findings if w.verdict in FAILING]
    names = list(dict.fromkeys([*LAWS, *(w.law for w in failing)]))
    document = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kvfuzz",
                        "semanticVersion": version("kvfuzz"),
                        "rules": [_rule(name) for name in names],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [{"executionSuccessful": summary.complete}],
                "properties": {
                    "contract": summary.contract, "seed": summary.seed, "cases": summary.cases,
                    "verdicts": summary.verdicts,
                    "planners": [visible(f"{p.role}: {p.address} (vLLM {p.version})") for p in summary.planners],
                },
                "results": [_result(summary, w, names.index(w.law), replay_arguments) for w in failing],
            }
        ],
    }  # fmt: skip
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"


def _rule(name: str) -> dict[str, Any]:
    text, reason = law_text(name), law_reason(name)
    severity = LAWS[name].severity if name in LAWS else "fault"
    return {
        "id": name,
        "shortDescription": {"text": text},
        "fullDescription": {"text": f"{text} {reason}".strip()},
        "defaultConfiguration": {"level": "note" if severity == "quality" else "error"},
    }


def _result(summary: Summary, witness: Witness, index: int, replay_arguments: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": witness.law,
        "ruleIndex": index,
        "level": _LEVELS[witness.verdict],
        "message": {
            "text": f"{witness.verdict}, {witness.planner} planner: {visible(witness.summary)} "
            f"(kvfuzz replay {witness.id}{visible(replay_arguments)})"
        },
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": planner_file(summary)},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [{"fullyQualifiedName": visible(witness.first_difference), "kind": "member"}],
            }
        ],
        "partialFingerprints": {FINGERPRINT: f"{witness.fingerprint}:{witness.verdict}"},
        "occurrenceCount": max(1, witness.seen),
        "properties": {"case": witness.id, "layers": witness.layers},
    }
    if witness.known:
        reason = visible(reason_known(summary, witness))
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": reason}]
    return result


def planner_file(summary: Summary) -> str:
    """The patched planner's source file, relative to the root of vLLM's sources."""
    patched = next((p.version for p in summary.planners if p.role == "patched"), "")
    try:
        has_moved = Version(patched).release >= _MOVED.release
    except InvalidVersion:
        has_moved = False
    return f"vllm/v1/core/{'kv_cache_planning' if has_moved else 'kv_cache_utils'}.py"
