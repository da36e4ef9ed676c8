"""Configurations kept with kvfuzz: small tables of public hyper-parameters, written by hand, one file per family.

``corpus/configs/FAMILY.toml`` holds ``[[model]]`` entries with a name and the fields of ``config.json`` that decide
what the model caches. They are facts for testing planners, not copies of anybody's files.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from fuzz.harvest.config_files import ConfigError, check_config
from fuzz.harvest.requests import Request, Size

DTYPE = "bfloat16"
"""Of every published checkpoint in the tables; vLLM would take 32-bit floats where a configuration says nothing."""

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.\-]*\Z", max_length=60)]


class KeptModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of a family's table; ``tp`` is the tensor-parallel size it is usually served with."""

    name: Name
    config: dict[str, Any]
    tp: Size = 1
    note: str = ""
    family: str = ""

    def request(self, platform: str) -> Request:
        """How it is harvested on ``platform``."""
        return Request(name=self.name, config={"torch_dtype": DTYPE, **self.config}, platform=platform, tp=self.tp)


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[KeptModel, ...]


def read_models(folder: Path) -> list[KeptModel]:
    """All models of ``folder``, by family and then as they stand in its file.

    Raises:
        ConfigError: no family there, or one whose file is not a table of models; names file and field.
    """
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise ConfigError(f"{folder}: no family of models (FAMILY.toml) in this folder")
    models: list[KeptModel] = []
    for path in files:
        try:
            table = msgspec.convert(tomllib.loads(path.read_text()), type=_Table)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise ConfigError(f"{path}: not readable as TOML ({error})") from None
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}: {error}") from None
        for model in table.model:
            try:
                check_config(model.config)
            except ConfigError as error:
                raise ConfigError(f"{path}: {model.name}: {error}") from None
            models.append(msgspec.structs.replace(model, family=path.stem))
    names = [model.name for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{folder}: {', '.join(twice)}: named twice")
    return models
