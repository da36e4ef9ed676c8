"""Harvested models: the cache specs that vLLM's own model classes give, as cases.

A *harvest* is one JSON object: the distinct specs of a model (``specs``: fields of vLLM's spec classes by vLLM's
names, with ``class`` and ``page_size_bytes``), its layers by pipeline stage (``stages``: pairs of name and index
into ``specs``), the layers a draft owns (``draft_layers``), the layout vLLM resolved and the settings its planner
saw (``planner_config``). Nothing of it is dropped in silence: an unknown class or field is an error.

A harvest is one case (``case_from_harvest``). The corpus keeps it in several forms (``variants``): under other
DCP sizes, and with its draft replicated or a replicated draft added. With worker processes the engine core plans
with settings from before its workers chose their block size: ``case_from_harvest`` is what the core sees,
``workers_case`` what the workers see.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import structs

from fuzz.planners.tree_specs import CLASS_NAMES
from oracles.case import (
    SPEC_CLASSES,
    AttentionSpec,
    Case,
    CaseError,
    CrossSpec,
    EncoderOnlySpec,
    FullSpec,
    Layer,
    MambaSpec,
    Provenance,
    Settings,
    SlidingWindowSpec,
    Spec,
    Speculative,
    Worker,
    build_case,
    check_case,
)
from oracles.geometry import page_bytes
from oracles.specs import fields_of

MEMORY = 64 * 2**30
"""Bytes per worker where a harvest says none: one request of every model harvested so far fits, on one GPU."""

DCP_SIZES = (1, 2, 4, 8)
"""A harvest is planned under each of them; published deployments go up to 8 on one node."""

LOCAL_DCP = 4
"""DCP size of the one variant of a model whose local layers cannot be sharded."""

DFLASH = "dflash"
EAGLE = "eagle3"
BY_HAND = (
    "The model's published hyper-parameters, written down by hand: check them before calling this a "
    "checkpoint's geometry."
)

OWN_DRAFT = "replicated-draft"
REPLICATED_LOCAL = "replicated-local"

KINDS = {name: kind for kind, name in CLASS_NAMES.items()}
DERIVED = {"class", "page_size_bytes", "dcp_sharded", "is_draft"}
"""Harvest fields that reach a case another way, or follow from the others."""

FIXED = {"mamba": {"num_heads": 1, "tokens_per_state": -1}}
"""Fields that vLLM's class of a kind has but that no model sets."""


class HarvestError(ValueError):
    """A harvest that is no case; the message names the field."""


def case_from_harvest(harvest: dict[str, Any], *, memory: int = MEMORY) -> Case:
    """The case that a harvest describes, with ``memory`` bytes on each worker, one worker a stage.

    Raises:
        HarvestError: a field is missing, unknown or of a value that a case cannot express.
    """
    try:
        specs = [_spec(fields, f"specs[{at}]") for at, fields in enumerate(harvest["specs"])]
        drafts = set(harvest["draft_layers"] or ())
        layers = [
            (Layer(name=name, spec=0, stage=stage, draft=name in drafts), specs[at])
            for stage, members in enumerate(harvest["stages"])
            for name, at in members
        ]
        settings = _settings(harvest, memory)
        provenance = _provenance(harvest)
    except (KeyError, IndexError) as error:
        raise HarvestError(f"{error}: missing from the harvest") from error
    case = build_case(layers, settings, provenance)
    try:
        check_case(case)
    except CaseError as error:
        raise HarvestError(str(error)) from error
    return case


def workers_case(harvest: dict[str, Any], *, memory: int = MEMORY) -> Case | None:
    """The case as the workers see its settings; None where that is what the engine core sees.

    Raises:
        HarvestError: as ``case_from_harvest``.
    """
    view = harvest.get("planner_config_worker_view")
    if not view:
        return None
    case = case_from_harvest({**harvest, "planner_config": view}, memory=memory)
    return None if case == case_from_harvest(harvest, memory=memory) else case


def _spec(fields: dict[str, Any], where: str) -> Spec:
    kind = KINDS.get(fields["class"])
    if kind is None:
        raise HarvestError(f"{where}.class: {fields['class']} is no cache spec known here")
    known = {field.name: field for field in fields_of(SPEC_CLASSES[kind])}
    given: dict[str, Any] = {"kind": kind}
    for name, value in fields.items():
        if name in DERIVED or FIXED.get(kind, {}).get(name) == value:
            continue
        if name not in known:
            raise HarvestError(f"{where}.{name}: a case has no such field for {fields['class']}")
        if isinstance(value, dict) and value.get("type") == "MultipleOf":
            value = {"multiple_of": value["base"]}
        given[name] = value
    if "replicated" in known:
        given["replicated"] = not fields.get("dcp_sharded", True)
    try:
        spec: Spec = msgspec.convert(given, type=Spec, strict=True)
    except msgspec.ValidationError as error:
        raise HarvestError(f"{where}: {error}") from error
    if "page_size_bytes" in fields and page_bytes(spec) != fields["page_size_bytes"]:
        raise HarvestError(
            f"{where}.page_size_bytes: vLLM says {fields['page_size_bytes']}, the other fields give {page_bytes(spec)}"
        )
    return spec


def _settings(harvest: dict[str, Any], memory: int) -> Settings:
    config = harvest["planner_config"]
    if config.get("prefill_context_parallel_size", 1) != 1:
        raise HarvestError("planner_config.prefill_context_parallel_size: a case has no such setting; harvest with 1")
    batches, rest = divmod(config["max_in_flight_tokens"], config["max_num_batched_tokens"])
    if rest:
        raise HarvestError("planner_config.max_in_flight_tokens: not a whole number of batches")
    return Settings(
        workers=tuple(Worker(memory=memory, stage=stage) for stage in range(len(harvest["stages"]))),
        dcp=config["decode_context_parallel_size"],
        tp=config["tensor_parallel_size"],
        layout=harvest["kv_cache_layout"],
        block_size=config["block_size"],
        model_len=config["max_model_len"],
        batched_tokens=config["max_num_batched_tokens"],
        batches_in_flight=batches,
        encoder_tokens=config["max_num_encoder_input_tokens"],
        mamba_mode=config["mamba_cache_mode"],
        prefix_caching=config["enable_prefix_caching"],
        hybrid_manager=not config["disable_hybrid_kv_cache_manager"],
        speculative=None
        if config["spec_method"] is None
        else Speculative(
            method=config["spec_method"],
            tokens=config["num_speculative_tokens"],
            # vLLM reads ahead by one token, or by the speculative tokens when MTP modules are chained.
            modules=max(1, config["num_prefill_lookahead_tokens"]),
        ),
        prefix_match_unit=config["hash_block_size"],
        model_type=harvest["model_config"]["model_type"],
        # Of harvests made before 0.33, in which a class may own its grouping, the class was not kept.
        architecture=harvest.get("architecture"),
    )


def _provenance(harvest: dict[str, Any]) -> Provenance:
    request = harvest["request"]
    parallel = " ".join(f"{name} {request[name]}" for name in ("tp", "pp", "dcp") if request[name] != 1)
    return Provenance(
        title=", ".join(part for part in (harvest["model"], request["platform"], parallel) if part),
        source=f"harvested from the model classes of vLLM {harvest['vllm'].split()[0]}",
        note=" ".join(part for part in (harvest.get("note", BY_HAND), _faked(harvest)) if part),
    )


def _faked(harvest: dict[str, Any]) -> str:
    lines = [line for line in harvest["faked"] if not line.startswith("fake op")]
    grade = [f"grade: {harvest['grade']}"] if "grade" in harvest else []
    return "; ".join(grade + lines)


def variants(case: Case) -> dict[str, Case]:
    """Forms of a harvested case by name: ``dcp4`` and ``dcp4.dflash``, and so on.

    A model whose attention is full or latent is planned under each of ``DCP_SIZES`` (and its own), with and
    without a replicated draft. vLLM cannot shard windows, chunks and encoder states, so a model with those
    stays at its own DCP size; one with windows or chunks also appears with those replicated. A draft of the
    model's own is replicated; a model without one gets five window layers or one full layer.
    """
    own = case.settings.dcp
    forms: dict[str, Case] = {}
    for at, dcp in enumerate(sorted({own, *DCP_SIZES}) if _can_shard(case) else [own]):
        plain = _at_dcp(case, dcp)
        forms[f"dcp{dcp}"] = plain
        # The two kinds of draft by turns: every pair of model and draft would be four times the files.
        name, drafted = _with_draft(plain, DFLASH if at % 2 == 0 else EAGLE)
        forms[f"dcp{dcp}.{name}"] = drafted
    if not _can_shard(case) and (local := _with_replicated_local(case)) is not None:
        forms[f"dcp{LOCAL_DCP}.{REPLICATED_LOCAL}"] = local
        name, drafted = _with_draft(local, DFLASH)
        forms[f"dcp{LOCAL_DCP}.{REPLICATED_LOCAL}.{name}"] = drafted
    return forms


def deployed(case: Case, dcp: int) -> Case:
    """A harvested case without draft at DCP size ``dcp``; above 1 its windows and chunks, which vLLM cannot split,
    are replicated.
    """
    if dcp == 1 or _can_shard(case) or any(isinstance(spec, CrossSpec | EncoderOnlySpec) for spec in case.specs):
        return _at_dcp(case, dcp)
    return _replicated_local(case, dcp)


def with_window_draft(case: Case) -> Case:
    """``case`` with five replicated window layers of a draft after its own."""
    return _with_draft(case, DFLASH)[1]


def _can_shard(case: Case) -> bool:
    """Whether vLLM can split every attention cache that is not replicated by token position."""
    return all(isinstance(spec, FullSpec) or spec.replicated for spec in case.specs if isinstance(spec, AttentionSpec))


def _at_dcp(case: Case, dcp: int) -> Case:
    # The ranks of DCP are ranks of TP; a larger TP size would shrink the heads, so it grows only as far as it must.
    settings = structs.replace(case.settings, dcp=dcp, tp=max(case.settings.tp, dcp))
    return structs.replace(case, settings=settings)


def _with_replicated_local(case: Case) -> Case | None:
    if any(isinstance(spec, CrossSpec | EncoderOnlySpec) for spec in case.specs):
        return None
    return _replicated_local(case, LOCAL_DCP)


def _replicated_local(case: Case, dcp: int) -> Case:
    pairs = []
    for layer in case.layers:
        spec = case.spec_of(layer)
        local = isinstance(spec, AttentionSpec) and not isinstance(spec, FullSpec)
        pairs.append((layer, structs.replace(spec, replicated=True) if local else spec))
    return _resolved(_at_dcp(build_case(pairs, case.settings, case.provenance), dcp))


def _with_draft(case: Case, wanted: str) -> tuple[str, Case]:
    """The name of the form, and the case with a replicated draft."""
    pairs = [(layer, case.spec_of(layer)) for layer in case.layers]
    if any(layer.draft for layer in case.layers):
        if all(isinstance(spec, AttentionSpec) and spec.replicated for layer, spec in pairs if layer.draft):
            kept = [(layer, spec) for layer, spec in pairs if not layer.draft]
            settings = structs.replace(case.settings, speculative=None)
            return "without-draft", build_case(kept, settings, case.provenance)
        replicated = [
            (layer, structs.replace(spec, replicated=True) if layer.draft and isinstance(spec, AttentionSpec) else spec)
            for layer, spec in pairs
        ]
        return OWN_DRAFT, _resolved(build_case(replicated, case.settings, case.provenance))
    spec, count, speculative = _draft(wanted, case)
    last = case.settings.stages - 1  # vLLM loads drafts on the last pipeline rank only
    pairs = [
        # Each token in speculation needs a state to go back to.
        (layer, structs.replace(one, num_speculative_blocks=speculative.tokens) if isinstance(one, MambaSpec) else one)
        for layer, one in pairs
    ]
    pairs += [
        (Layer(name=f"draft.layers.{at}.self_attn.attn", spec=0, stage=last, draft=True), spec) for at in range(count)
    ]
    settings = structs.replace(case.settings, speculative=speculative)
    return wanted, _resolved(build_case(pairs, settings, case.provenance))


def _draft(name: str, target: Case) -> tuple[Spec, int, Speculative]:
    """Spec, layers and settings of a draft with the heads of published ones: two of 128, or eight."""
    if name == DFLASH:
        window = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=128, sliding_window=2048, replicated=True)
        return window, 5, Speculative(method="dflash", tokens=7)
    # vLLM gives a draft the block size that the target's layers were given.
    block = min((spec.block_size for spec in target.specs if isinstance(spec, FullSpec)), default=16)
    full = FullSpec(block_size=block, num_kv_heads=8, head_size=128, replicated=True)
    return full, 1, Speculative(method="eagle3", tokens=3)


def _resolved(case: Case) -> Case:
    """``case`` under the layout that vLLM's guard would leave: block-outermost when both the modes and the pages
    of its layers differ.
    """
    attention = [spec for spec in case.specs if isinstance(spec, AttentionSpec)]
    mixed = len({spec.replicated for spec in attention}) > 1
    if mixed and len({page_bytes(spec) for spec in case.specs}) > 1 and case.settings.layout.startswith("L"):
        # Heads outside positions, or inside them, as the backend had it.
        layout: Any = "BLHNC" if case.settings.layout == "LBHNC" else "BLNHC"
        return structs.replace(case, settings=structs.replace(case.settings, layout=layout))
    return case
