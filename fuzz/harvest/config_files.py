"""Reading a model's ``config.json``: untrusted data, within limits, with every complaint naming the field.

Only the form is judged here. Whether the values make a model is for vLLM to say, in a process with limits of its
own; what no model has and what would only exhaust that process is refused before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from fuzz.case_files import open_file

MAX_CONFIG_BYTES = 4 * 2**20
"""Published files are below 100 KiB; a few list thousands of labels."""

MAX_DEPTH = 12
"""Published files nest at most five deep."""

MAX_ITEMS = 100_000
"""Entries of one list or object; a list of layer types has as many as layers."""

MAX_INTEGER = 2**53
"""Larger ones are not the same number in every JSON reader, and no size of a model is near."""

MAX_SHOWN = 60
"""Characters of a hostile name or value that a message repeats."""

LIMITS = {
    "num_hidden_layers": 2_000, "n_layer": 2_000, "n_layers": 2_000, "num_layers": 2_000, "encoder_layers": 2_000,
    "decoder_layers": 2_000, "num_nextn_predict_layers": 64,
    "num_attention_heads": 4_096, "num_key_value_heads": 4_096, "n_head": 4_096,
    "head_dim": 65_536, "kv_lora_rank": 65_536, "hidden_size": 1_000_000, "intermediate_size": 10_000_000,
    "vocab_size": 10_000_000, "num_experts": 65_536, "n_routed_experts": 65_536, "num_local_experts": 65_536,
    "max_position_embeddings": 2**30,
}  # fmt: skip
"""Counts that are positive whole numbers wherever they stand, and the most of each: ten times what any model has."""


class ConfigError(ValueError):
    """A configuration that cannot be used: names the file, the field and the remedy."""


def read_config(path: Path) -> dict[str, Any]:
    """The object in ``path``, or in the ``config.json`` of a model's folder.

    Raises:
        ConfigError: no such file, not a JSON object, or a field that no model has.
    """
    if path.is_dir():
        inside = path / "config.json"
        if not inside.is_file():
            raise ConfigError(f"{path}: no config.json in this folder; give a model's folder or its config.json")
        path = inside
    try:
        with open_file(path) as stream:
            data = stream.read(MAX_CONFIG_BYTES + 1)  # never more: the file may be larger than memory, or endless
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        return parse_config(data)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(data: bytes) -> dict[str, Any]:
    """The configuration in ``data``. Raises ConfigError."""
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"more than {MAX_CONFIG_BYTES:,} bytes; a model's config.json has a few thousand")
    try:
        config = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not JSON ({error})") from None
    except RecursionError:
        raise ConfigError(f"nested deeper than {MAX_DEPTH} levels") from None
    if not isinstance(config, dict):
        raise ConfigError(f"holds {_word(config)}, not an object of settings")
    check_config(config)
    return config


def check_config(config: dict[str, Any]) -> None:
    """Raises ConfigError for the first field that cannot be in a model's configuration."""
    _check(config, "", 0)
    if not _names_a_model(config):
        raise ConfigError("architectures: missing, and model_type too; one of them says which model class to build")


def _names_a_model(config: dict[str, Any]) -> bool:
    return any(config.get(key) for key in ("architectures", "model_type"))


def _check(value: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ConfigError(f"{_shorten(where)}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict | list) and len(value) > MAX_ITEMS:
        raise ConfigError(f"{_shorten(where) or 'file'}: {len(value):,} entries; at most {MAX_ITEMS:,} are read")
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.isprintable() or not name:
                raise ConfigError(f"{_shorten(where) or 'file'}: has the field {_shorten(name)!r}; "
                                  "use a name of printable characters")  # fmt: skip
            field = f"{where}.{name}" if where else name
            _check_count(name, inner, field)
            _check(inner, field, depth + 1)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            _check(inner, f"{where}[{at}]", depth + 1)
    elif isinstance(value, str):
        if not value.replace("\n", "").replace("\t", "").isprintable():
            raise ConfigError(f"{_shorten(where)}: has control characters; use printable ones")
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INTEGER:
        raise ConfigError(f"{_shorten(where)}: {_shorten(str(value))} is larger than any size of a model")


def _check_count(name: str, value: Any, field: str) -> None:
    most = LIMITS.get(name)
    if most is None or value is None or isinstance(value, list | dict):
        return  # some models give a value for each layer
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{_shorten(field)}: {_shorten(repr(value))} is {_word(value)}; write a whole number")
    if not 0 <= value <= most:
        raise ConfigError(f"{_shorten(field)}: {_shorten(str(value))} is not between 0 and {most:,}")


def _word(value: Any) -> str:
    words = {
        list: "a list",
        str: "a text",
        bool: "true or false",
        float: "a fraction",
        int: "a number",
        dict: "an object",
    }
    return words.get(type(value), "null")


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
