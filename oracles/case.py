"""A *case* is one question to a planner: the layers of a model, what each caches, and the settings.

A case is a small JSON value. On disk it holds a table of distinct layer specs and an ordered list of layers
that point into it. Its *id* is the first twelve hex digits of the SHA-256 of its canonical form: sorted
keys, defaults left out, provenance left out. Two files that ask the same question have the same id.

Units: block sizes, windows, chunks and lengths are in tokens; pages, paddings, alignments and memory in bytes.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from oracles.geometry import check_spec
from oracles.specs import (
    SPEC_CLASSES,
    AttentionSpec,
    CaseError,
    ChunkedLocalSpec,
    CircularBufferSpec,
    CrossSpec,
    DType,
    EncoderOnlySpec,
    FullSpec,
    HiddenStateSpec,
    LayerSpec,
    Layout,
    MambaSpec,
    MlaSpec,
    Mode,
    MultipleOf,
    RSwaSpec,
    SinkSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
    Text,
    Tokens,
    intern_defaults,
    is_latent,
    kind_of,
    mode_of,
)

FORMAT = 1
"""Version of the case file. A change that old readers would misread raises it."""

MAX_FILE_BYTES = 16 * 2**20
"""No published model needs a hundredth of this; it bounds what a hostile file can make us allocate."""

MAX_LAYERS = 10_000
"""Ten times the largest layer count the speed target speaks of (DESIGN 12)."""


class Layer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One layer: its name, its spec (index into the case's table), its pipeline stage, whether a draft owns it."""

    name: Text
    spec: Annotated[int, Meta(ge=0, lt=MAX_LAYERS)]
    stage: Annotated[int, Meta(ge=0, lt=256)] = 0
    draft: bool = False


class Worker(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One worker process: the stage it serves and the bytes it has for the cache."""

    memory: Annotated[int, Meta(ge=0, le=2**50)]
    stage: Annotated[int, Meta(ge=0, lt=256)] = 0


class Speculative(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Speculative decoding: method, tokens per step, and the number of chained MTP modules."""

    method: Literal["eagle", "eagle3", "mtp", "dflash", "dspark", "draft_model", "ngram", "extract_hidden_states"]
    tokens: Annotated[int, Meta(ge=1, le=64)] = 1
    modules: Annotated[int, Meta(ge=1, le=64)] = 1


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the engine is started with.

    ``layout_origin`` tells a layout that vLLM would resolve from one that was forced on it: faults under a
    resolved layout are faults; under a forced one they are gaps in the guards. ``batches_in_flight`` is the
    number of concurrent scheduler steps. ``block_override`` replaces the profiled block count. ``architecture`` names
    the model class, which may own its grouping (0.33); None asks for vLLM's own rules.
    """

    workers: Annotated[tuple[Worker, ...], Meta(min_length=1, max_length=64)] = (Worker(memory=2**30),)
    dcp: Annotated[int, Meta(ge=1, le=64)] = 1
    tp: Annotated[int, Meta(ge=1, le=64)] = 1
    layout: Layout = "LBNHC"
    layout_origin: Literal["resolved", "forced"] = "resolved"
    block_size: Tokens = 16
    model_len: Tokens = 8192
    auto_fit: bool = False
    batched_tokens: Tokens = 2048
    batches_in_flight: Annotated[int, Meta(ge=1, le=64)] = 1
    encoder_tokens: Tokens = 2048
    mamba_mode: Literal["none", "align", "all"] = "none"
    prefix_caching: bool = True
    hybrid_manager: bool = True
    speculative: Speculative | None = None
    block_override: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    prefix_match_unit: Tokens | None = None
    model_type: Text = "kvfuzz"
    architecture: Text | None = None

    def __post_init__(self) -> None:
        intern_defaults(self)

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return 1 + max(w.stage for w in self.workers)


class Provenance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a case comes from. Not part of its identity."""

    title: Annotated[str, Meta(max_length=400)] = ""
    source: Annotated[str, Meta(max_length=400)] = ""
    note: Annotated[str, Meta(max_length=4000)] = ""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Ordered layers, their specs, and the settings they are planned under."""

    specs: Annotated[tuple[Spec, ...], Meta(max_length=MAX_LAYERS)]
    layers: Annotated[tuple[Layer, ...], Meta(max_length=MAX_LAYERS)]
    settings: Settings = Settings()
    provenance: Provenance = Provenance()

    def __post_init__(self) -> None:
        intern_defaults(self)

    def spec_of(self, layer: Layer) -> Spec:
        """The spec of ``layer``."""
        return self.specs[layer.spec]


def is_mixed(case: Case) -> bool:
    """Whether replicated attention layers stand beside other layers: where the contract ``isolate`` splits."""
    modes = {mode_of(case.specs[layer.spec]) for layer in case.layers}
    return "replicated" in modes and len(modes) > 1


def replicated_part(case: Case) -> Case:
    """The replicated layers of ``case`` alone, in order, under the same settings."""
    return keep_layers(case, [layer for layer in case.layers if mode_of(case.spec_of(layer)) == "replicated"])


def sharded_part(case: Case) -> Case:
    """All other layers (sharded attention and recurrent state), in order, under the same settings."""
    return keep_layers(case, [layer for layer in case.layers if mode_of(case.spec_of(layer)) != "replicated"])


def keep_layers(case: Case, layers: list[Layer]) -> Case:
    """``case`` with only ``layers``; the spec table is rebuilt in order of first use."""
    return build_case([(layer, case.specs[layer.spec]) for layer in layers], case.settings, case.provenance)


def build_case(layers: list[tuple[Layer, Spec]], settings: Settings, provenance: Provenance | None = None) -> Case:
    """A case from (layer, spec) pairs; each layer's ``spec`` index is set here."""
    table: dict[Spec, int] = {}
    numbered = [
        layer if layer.spec == (at := table.setdefault(spec, len(table))) else structs.replace(layer, spec=at)
        for layer, spec in layers
    ]
    return Case(specs=tuple(table), layers=tuple(numbered), settings=settings, provenance=provenance or Provenance())


def canonical(case: Case) -> bytes:
    """The bytes that name a case: sorted keys, no defaults, no provenance."""
    body = case if case.provenance == Provenance() else structs.replace(case, provenance=Provenance())
    return _CANONICAL.encode(body)


Shortlex = tuple[int, int, bytes]
"""Layers, length of the canonical form, the form itself."""


def shortlex(case: Case) -> Shortlex:
    """Where a case stands in the order from the least one up."""
    text = canonical(case)
    return len(case.layers), len(text), text


def case_id(case: Case) -> str:
    """First twelve hex digits of the SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(case)).hexdigest()[:12]


_CANONICAL = msgspec.json.Encoder(order="sorted")
_VERSION = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BODY = msgspec.json.Decoder(Case)


def dump_case(case: Case) -> bytes:
    """A case file: readable, one spec and one layer a line, ending in a newline."""
    raw: dict[str, Any] = msgspec.json.decode(_CANONICAL.encode(case))
    parts = [f' "format": {FORMAT}']
    for key in sorted(raw):
        value = raw[key]
        if isinstance(value, list):
            rows = ",\n".join(f"  {_CANONICAL.encode(item).decode()}" for item in value)
            parts.append(f' "{key}": [\n{rows}\n ]' if value else f' "{key}": []')
        else:
            rows = ",\n".join(f'  "{name}": {_CANONICAL.encode(item).decode()}' for name, item in value.items())
            parts.append(f' "{key}": {{\n{rows}\n }}' if value else f' "{key}": {{}}')
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def load_case(data: bytes) -> Case:
    """Reads a case file.

    Raises:
        CaseError: not JSON, an unknown format version, a wrong or missing field, or a case that no planner
            can be asked. The message names the field and the remedy.
    """
    if len(data) > MAX_FILE_BYTES:
        raise CaseError(f"file: {len(data):,} bytes; a case file has at most {MAX_FILE_BYTES:,}")
    try:
        top = _VERSION.decode(data)
    except msgspec.DecodeError as error:
        raise CaseError(f"file: not a JSON object ({error})") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"file: not readable as JSON ({type(error).__name__})") from None
    if "format" not in top:
        raise CaseError(f'format: missing; add "format": {FORMAT}')
    version = bytes(top.pop("format"))
    if version != str(FORMAT).encode():
        shown = version.decode(errors="replace")[:40]
        raise CaseError(f"format: {shown} is not known here; this kvfuzz reads format {FORMAT}")
    try:
        case = _BODY.decode(msgspec.json.encode(top))
    except msgspec.ValidationError as error:
        raise CaseError(_plain(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaseError(f"file: not a case ({error})") from None
    for at, layer in enumerate(case.layers):
        if layer.spec >= len(case.specs):
            raise CaseError(f"layers[{at}].spec: {layer.spec} points past the table of {len(case.specs)} specs")
    check_case(case)
    return keep_layers(case, list(case.layers))


def _plain(message: str) -> str:
    """The library's ``Expected … - at `$.specs[0].x``` as ``specs[0].x: expected …``."""
    what, _, where = message.partition(" - at ")
    field = where.strip("`").removeprefix("$.").removeprefix("$") or "file"
    return f"{field}: {what[:1].lower()}{what[1:]}"


def check_case(case: Case) -> None:
    """Raises CaseError when the case is not one that a planner can be asked.

    Only the input is judged: whether it can be *planned* is the planner's business.
    """
    for at, spec in enumerate(case.specs):
        try:
            check_spec(spec)
        except CaseError as error:
            raise CaseError(f"specs[{at}].{error}") from None
    seen: set[str] = set()
    served = {worker.stage for worker in case.settings.workers}
    for at, layer in enumerate(case.layers):
        if not layer.name.isprintable():
            raise CaseError(f"layers[{at}].name: has control characters; use printable ones")
        if layer.name in seen:
            raise CaseError(f"layers[{at}].name: {layer.name!r} stands twice; layer names are unique")
        seen.add(layer.name)
        if layer.stage not in served:
            raise CaseError(f"layers[{at}].stage: no worker serves stage {layer.stage}; add one to settings.workers")
    for field, text in (
        ("provenance.title", case.provenance.title),
        ("provenance.source", case.provenance.source),
        ("provenance.note", case.provenance.note.replace("\n", " ")),
        ("settings.model_type", case.settings.model_type),
        ("settings.architecture", case.settings.architecture or ""),
    ):
        if text and not text.isprintable():
            raise CaseError(f"{field}: has control characters; use printable ones")


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a case file."""
    (schema,), components = msgspec.json.schema_components([Case], ref_template="#/$defs/{name}")
    body = components.pop("Case")
    body["properties"] = {"format": {"const": FORMAT}, **body["properties"]}
    body["required"] = ["format", *body["required"]]
    del schema
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **body,
        "title": f"kvfuzz case, format {FORMAT}",
        "$defs": components,
    }


__all__ = [  # the specs too: who reads cases reads their specs
    "FORMAT",
    "MAX_FILE_BYTES",
    "MAX_LAYERS",
    "SPEC_CLASSES",
    "AttentionSpec",
    "Case",
    "CaseError",
    "ChunkedLocalSpec",
    "CircularBufferSpec",
    "CrossSpec",
    "DType",
    "EncoderOnlySpec",
    "FullSpec",
    "HiddenStateSpec",
    "Layer",
    "LayerSpec",
    "Layout",
    "MambaSpec",
    "MlaSpec",
    "Mode",
    "MultipleOf",
    "Provenance",
    "RSwaSpec",
    "Settings",
    "Shortlex",
    "SinkSpec",
    "SlidingWindowMlaSpec",
    "SlidingWindowSpec",
    "Spec",
    "Speculative",
    "Worker",
    "build_case",
    "canonical",
    "case_id",
    "check_case",
    "dump_case",
    "is_latent",
    "is_mixed",
    "json_schema",
    "keep_layers",
    "kind_of",
    "load_case",
    "mode_of",
    "replicated_part",
    "sharded_part",
    "shortlex",
]
