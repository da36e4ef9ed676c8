"""Requests and what a refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz.harvest.config_files import ConfigError
from fuzz.harvest.requests import Refusal, Request, check_request, grade_of


def request(**values: Any) -> Request:
    return Request(name="m", config={"model_type": "llama"}, **values)


@pytest.mark.parametrize("platform", ["cpu", "sm80", "sm90", "sm100"])
def test_known_platforms_pass(platform: str) -> None:
    check_request(request(platform=platform))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"platform": "tpu"}, "--platform 'tpu': is not known"),
        ({"tp": 4, "dcp": 3}, "--dcp 3: the ranks of DCP are ranks of TP"),
        ({"tp": 32, "pp": 4}, "more than 64 ranks"),
    ],
)
def test_sizes_that_cannot_go_together_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_request(request(**values))


def test_a_missing_key_is_named() -> None:
    refusal = Refusal(stage="build", type="AttributeError", message="…", missing="conv_dim")
    assert refusal.sentence() == "the configuration lacks 'conv_dim', which its model class reads"


def test_a_validation_error_is_told_without_its_frame() -> None:
    message = (
        "1 validation error for VllmConfig\n  Value error, heads (32) not divisible by 3. [type=value_error, x]\n  For"
    )
    refusal = Refusal(stage="config", type="ValidationError", message=message)
    assert refusal.sentence() == "vLLM refuses it (ValidationError): heads (32) not divisible by 3."


def test_grades_follow_the_platform_and_the_values_read() -> None:
    def grade(platform: str, reads: int = 0, *faked: str) -> str:
        return grade_of({"reads": reads, "request": {"platform": platform}, "faked": list(faked)})

    assert grade("cpu") == "exact"
    assert grade("sm90") == "simulated"
    assert grade("cpu", 0, "custom operations that are absent …") == "simulated"
    assert grade("cpu", 1) == "approximate"
