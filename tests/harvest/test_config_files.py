"""Configurations are untrusted: every complaint names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fuzz.harvest.config_files import MAX_CONFIG_BYTES, ConfigError, parse_config, read_config


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"inner": value}
    return value


def said(config: Any) -> str:
    with pytest.raises(ConfigError) as found:
        parse_config(json.dumps(config).encode())
    return str(found.value)


def test_a_plain_configuration_is_taken_as_it_is() -> None:
    config = {"model_type": "llama", "num_hidden_layers": 32, "rope_scaling": {"factor": 8.0}, "q_lora_rank": None}
    assert parse_config(json.dumps(config).encode()) == config


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("num_hidden_layers", 10**12, "num_hidden_layers: 1000000000000 is not between 0 and 2,000"),
        ("num_hidden_layers", -1, "num_hidden_layers: -1 is not between 0 and 2,000"),
        ("num_hidden_layers", "32", "num_hidden_layers: '32' is a text; write a whole number"),
        ("num_attention_heads", True, "num_attention_heads: True is true or false; write a whole number"),
        ("head_dim", 12.5, "head_dim: 12.5 is a fraction; write a whole number"),
        ("rope_theta", 2**60, "rope_theta: 1152921504606846976 is larger than any size of a model"),
        ("name", "a\x1b[31mb", "name: has control characters; use printable ones"),
        ("layer_types", ["full_attention", "a\x00"], "layer_types[1]: has control characters"),
    ],
)
def test_a_hostile_field_is_named(field: str, value: Any, words: str) -> None:
    assert words in said({"model_type": "llama", field: value})


def test_a_hostile_field_inside_another_is_named_with_its_path() -> None:
    assert said({"model_type": "x", "text_config": {"num_hidden_layers": "many"}}).startswith(
        "text_config.num_hidden_layers: 'many' is a text"
    )


def test_a_field_whose_name_has_control_characters_is_shown_escaped() -> None:
    assert r"'a\x1b[31m'" in said({"model_type": "x", "a\x1b[31m": 1})


def test_deep_nesting_is_refused() -> None:
    assert "nested deeper than 12 levels" in said({"model_type": "x", "deep": nested(13)})
    assert parse_config(json.dumps({"model_type": "x", "deep": nested(11)}).encode())


def test_nesting_beyond_the_reader_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nested deeper|not JSON"):
        parse_config(b'{"a":' * 100_000)


def test_a_large_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as stream:
        stream.truncate(100 * 2**20)  # sparse
    with pytest.raises(ConfigError, match=f"more than {MAX_CONFIG_BYTES:,} bytes"):
        read_config(path)


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config\.json in this folder"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not json", "not JSON"),
        (b"[1]", "holds a list, not an object"),
        (b"{}", "architectures: missing"),
        (b'{"model_type": NaN}', "not JSON"),
        (b'{"model_type": "\xff"}', "not JSON"),
    ],
)
def test_what_is_no_configuration_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_config(data)
