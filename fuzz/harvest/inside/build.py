"""Builds one model with vLLM's own classes on the meta device and reads the cache spec of each layer.

Everything of vLLM is imported here, in the process that ``main`` runs; the result is plain values. Steps follow
the engine's own order: config, process groups, model, draft, block size, specs, layout.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import traceback
from pathlib import Path
from typing import Any

import torch

from fuzz.harvest.inside import stand_ins


class Refused(Exception):
    """vLLM does not accept the configuration; ``stage`` says when: ``config``, ``build`` or ``specs``."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.stage = stage
        self.error = error


def harvest(request: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The harvest of one request.

    Raises:
        Refused: vLLM raised; its error is the cause.
    """
    import vllm

    notes = list(notes)
    with _at("config"):
        config = _engine_config(request)
    core_view = planner_values(config)
    sizes = {"tp": request["tp"], "pp": request["pp"], "dcp": request["dcp"]}
    sizes["world"] = request["tp"] * request["pp"]
    if max(sizes.values()) > 1:
        notes.append("process groups faked: " + " ".join(f"{name}={sizes[name]}" for name in ("tp", "pp", "dcp")))
    stages: list[dict[str, Any]] = []
    drafts: list[str] = []
    backends: dict[str, int] = {}
    layouts: list[list[str]] = []
    speculator: str | None = None
    worker_view: dict[str, Any] | None = None
    reads = 0
    for stage in range(request["pp"]):
        built = _one_stage(config, sizes, stage)
        stages.append(built.specs)
        drafts.extend(built.drafts)
        speculator = built.speculator or speculator
        reads += built.reads
        layouts.append(built.layouts)
        worker_view = built.view
        for name, count in built.backends.items():
            backends[name] = backends.get(name, 0) + count
    if reads:
        notes.append(f"tensor values read while building: {reads}, answered with zeros")
    in_process = config.parallel_config.distributed_executor_backend == "uni"
    if in_process:
        assert worker_view is not None
        core_view, worker_view = worker_view, None
    specs = [spec for one in stages for spec in one.values()]
    with _at("specs"):
        layout = _layout(config, specs, layouts)
    core_view["kv_cache_layout"] = layout
    if worker_view is not None:
        worker_view["kv_cache_layout"] = layout
        if worker_view == core_view:
            worker_view = None
    table: list[dict[str, Any]] = []
    rows = []
    for one in stages:
        row = []
        for name, spec in one.items():
            fields = spec_fields(spec)
            if fields not in table:
                table.append(fields)
            row.append([name, table.index(fields)])
        rows.append(row)
    return {
        "vllm": vllm.__version__,
        "model": request["name"],
        "model_config": {"model_type": str(config.model_config.hf_config.model_type)},
        "architecture": config.model_config.architecture,
        "owns_grouping": bool(getattr(config.model_config, "supports_kv_cache_grouping", False)),
        "request": {key: request[key] for key in ("platform", "tp", "dcp", "pp", "block_size", "kv_cache_dtype")},
        "faked": notes,
        "reads": reads,
        "speculator": speculator,
        "draft_layers": drafts,
        "kv_cache_layout": layout,
        "backends": dict(sorted(backends.items())),
        "planner_config": core_view,
        "planner_config_worker_view": worker_view,
        "specs": table,
        "stages": rows,
    }


@contextlib.contextmanager
def _at(stage: str) -> Any:
    """Turns what vLLM raises into a refusal at ``stage``."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise Refused(stage, error) from error


def _engine_config(request: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import EngineArgs

    speculative = request["speculative"]
    wanted = {
        "model": request["folder"],
        "tokenizer": request["folder"],
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "enforce_eager": True,
        "trust_remote_code": False,
        "tensor_parallel_size": request["tp"],
        "pipeline_parallel_size": request["pp"],
        "decode_context_parallel_size": request["dcp"],
        "distributed_executor_backend": "mp" if request["tp"] * request["pp"] > 1 else None,
        "block_size": request["block_size"],
        "kv_cache_dtype": request["kv_cache_dtype"],
        "max_model_len": request["max_model_len"],
        "speculative_config": speculative,
        "max_num_seqs": 128,
        **request["engine_args"],
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    return EngineArgs(**wanted).create_engine_config()


@dataclasses.dataclass
class Stage:
    """What one pipeline stage gave: specs by layer name, draft layers, attention backends, and the config after it."""

    specs: dict[str, Any]
    drafts: list[str]
    backends: dict[str, int]
    speculator: str | None
    layouts: list[str]
    view: dict[str, Any]
    reads: int


def _one_stage(base: Any, sizes: dict[str, int], stage: int) -> Stage:
    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.platforms import current_platform
    from vllm.utils.torch_utils import set_default_torch_dtype

    config = copy.deepcopy(base) if sizes["pp"] > 1 else base
    config.parallel_config.rank = stage * sizes["tp"]
    stand_ins.set_groups(parallel_state, sizes, stage)
    speculator = None
    with _at("build"), set_current_vllm_config(config), stand_ins.OnMeta() as mode:
        _prepare_workspace()
        with set_default_torch_dtype(config.model_config.dtype), stand_ins.META:
            model = initialize_model(vllm_config=config, model_config=config.model_config)
        target = set(config.compilation_config.static_forward_context)
        if config.speculative_config is not None and stage == sizes["pp"] - 1:
            speculator = _load_draft(config, model)
        reads = mode.reads
    layers = config.compilation_config.static_forward_context
    with _at("specs"), set_current_vllm_config(config):
        current_platform.update_block_size_for_backend(config)
        config.validate_block_size()
        specs = _runner_specs(config, speculator)
        backends: dict[str, int] = {}
        for name in specs:
            backend = layers[name].get_attn_backend().get_name()
            backends[backend] = backends.get(backend, 0) + 1
        layouts = _supported_layouts(config)
    return Stage(
        specs=specs,
        drafts=[name for name in specs if name not in target],
        backends=backends,
        speculator=type(speculator).__name__ if speculator is not None else None,
        layouts=layouts,
        view=planner_values(config),
        reads=reads,
    )


def _prepare_workspace() -> None:
    from vllm.v1.worker import workspace

    workspace._manager = None  # one per process otherwise; stages are built one after another
    workspace.init_workspace_manager(stand_ins.META)


def _load_draft(config: Any, model: Any) -> Any:
    """The speculator of vLLM, with its draft built beside the target."""
    from vllm.model_executor.model_loader import base_loader
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.gpu.spec_decode import init_speculator

    def initialise_only(_self: Any, vllm_config: Any, model_config: Any, prefix: str = "") -> Any:
        with set_default_torch_dtype(model_config.dtype), stand_ins.META:
            return initialize_model(vllm_config=vllm_config, model_config=model_config, prefix=prefix)

    base_loader.BaseModelLoader.load_model = initialise_only
    speculator = init_speculator(config, stand_ins.META, None)
    if hasattr(speculator, "load_model"):
        speculator.load_model(model)
    return speculator


def _runner_specs(config: Any, speculator: Any) -> dict[str, Any]:
    """What the model runner would report: its own function, on a stand-in that has the three things it reads."""
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    runner: Any = object.__new__(type("Runner", (), {}))
    runner.vllm_config = config
    runner.speculator = speculator
    runner.dcp_size = config.parallel_config.decode_context_parallel_size
    return dict(GPUModelRunner.get_kv_cache_spec(runner))


def _supported_layouts(config: Any) -> list[str]:
    from vllm.v1.worker.worker_base import WorkerBase

    worker: Any = object.__new__(type("Worker", (), {}))
    worker.vllm_config = config
    return list(WorkerBase.get_supported_kv_cache_layouts(worker))


def _layout(config: Any, specs: list[Any], layouts: list[list[str]]) -> str:
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout

    return str(resolve_kv_cache_layout(config, layouts, specs).name)


def spec_fields(spec: Any) -> dict[str, Any]:
    """A cache spec as plain values: its class, its fields, and the bytes of its page."""
    fields = {"class": type(spec).__name__}
    for field in dataclasses.fields(spec):
        fields[field.name] = plain(getattr(spec, field.name))
    fields["page_size_bytes"] = spec.page_size_bytes
    return fields


def plain(value: Any) -> Any:
    """A value as JSON can hold it, without loss."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) and value.value in ("sparse", "indexer") else value.name
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple | torch.Size):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if type(value).__name__ == "MultipleOf":
        return {"type": "MultipleOf", "base": value.base}
    return str(value)


def planner_values(config: Any) -> dict[str, Any]:
    """The settings that planning reads, as this process has them now."""
    cache, parallel, scheduler = config.cache_config, config.parallel_config, config.scheduler_config
    spec = config.speculative_config
    return {
        "block_size": cache.block_size,
        "user_specified_block_size": cache.user_specified_block_size,
        "cache_dtype": cache.cache_dtype,
        "mamba_block_size": cache.mamba_block_size,
        "mamba_page_size_padded": cache.mamba_page_size_padded,
        "mamba_cache_mode": cache.mamba_cache_mode,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "hash_block_size": getattr(cache, "prefix_match_unit", None),
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "decode_context_parallel_size": parallel.decode_context_parallel_size,
        "prefill_context_parallel_size": getattr(parallel, "prefill_context_parallel_size", 1),
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "disable_hybrid_kv_cache_manager": bool(scheduler.disable_hybrid_kv_cache_manager),
        "max_num_encoder_input_tokens": scheduler.max_num_encoder_input_tokens,
        "max_model_len": config.model_config.max_model_len,
        "max_in_flight_tokens": config.max_in_flight_tokens,
        "num_speculative_tokens": config.num_speculative_tokens,
        "num_prefill_lookahead_tokens": config.num_prefill_lookahead_tokens
        if hasattr(config, "num_prefill_lookahead_tokens") else 0,
        "spec_method": spec.method if spec is not None else None,
        "use_v2_model_runner": bool(config.use_v2_model_runner),
    }  # fmt: skip


def failure(refused: Refused) -> dict[str, Any]:
    """A refusal as plain values: where, the error, and the innermost frames of vLLM."""
    error = refused.error
    frames = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    ]
    return {
        "stage": refused.stage,
        "type": type(error).__name__,
        "message": str(error)[:4000],
        "frames": frames[-6:],
        "missing": missing_key(error),
    }


def missing_key(error: BaseException) -> str | None:
    """The configuration key whose absence an error is about, where it says."""
    if isinstance(error, AttributeError) and error.name and "Config" in type(error.obj).__name__:
        return str(error.name)
    if isinstance(error, KeyError) and error.args and isinstance(error.args[0], str):
        return error.args[0]
    return None
