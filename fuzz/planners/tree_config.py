"""The engine configuration of one case, built on one real ``VllmConfig`` of the tree.

A real config costs milliseconds to make, so one is made per process and copied shallowly per case. The model
is a stub: planning reads its lengths and type only. Speculative settings are an instance of the tree's own
class, so that its own methods answer.
"""

from __future__ import annotations

import copy
import types
from types import ModuleType
from typing import Any

from fuzz.planners.tree_owner import Owners, model_of
from fuzz.planners.tree_specs import Inexpressible
from oracles.case import Case, FullSpec, Settings, Speculative


class Configs:
    """Makes the config of a case."""

    def __init__(self, modules: dict[str, ModuleType], builder: str = "") -> None:
        config = modules["config"]
        self.owners = Owners(modules, builder)
        self.model_text = ""
        """The model's ``config.json`` for the case asked next, where it is at hand."""
        self.base: Any = config.VllmConfig(device_config=config.DeviceConfig(device="cpu"))
        self.speculative_class: Any = config.SpeculativeConfig
        self.case_class = type("CaseConfig", (config.VllmConfig,), {
            # The property of vLLM derives this from the runner and its platform; a case states it.
            "max_in_flight_tokens": property(lambda self: self.kvfuzz_in_flight_tokens),
        })  # fmt: skip

    def make(self, case: Case) -> Any:
        """The config for ``case``. Raises Inexpressible."""
        settings = case.settings
        config = copy.copy(self.base)
        config.__class__ = self.case_class
        assign = object.__setattr__
        assign(config, "kvfuzz_in_flight_tokens", settings.batches_in_flight * settings.batched_tokens)
        assign(config, "cache_config", self._cache(case))
        assign(config, "parallel_config", self._changed(
            self.base.parallel_config,
            decode_context_parallel_size=settings.dcp,
            tensor_parallel_size=settings.tp,
            pipeline_parallel_size=settings.stages,
        ))  # fmt: skip
        assign(config, "scheduler_config", self._changed(
            self.base.scheduler_config,
            max_num_batched_tokens=settings.batched_tokens,
            max_num_encoder_input_tokens=settings.encoder_tokens,
            disable_hybrid_kv_cache_manager=not settings.hybrid_manager,
        ))  # fmt: skip
        owner = self.owners.of(case)
        model = self._model(case)
        assign(config, "kvfuzz_owner", owner)
        assign(config, "model_config", model if owner is None else model_of(case, owner, model, self.model_text))
        assign(config, "speculative_config", self._speculative(settings.speculative))
        return config

    @staticmethod
    def _changed(base: Any, **values: Any) -> Any:
        made = copy.copy(base)
        for name, value in values.items():
            # Platform and config objects answer None for what they lack, so hasattr would not tell.
            if name not in vars(made) and not hasattr(type(made), name):
                raise Inexpressible(f"settings.{name}", "this tree's config has no such field")
            object.__setattr__(made, name, value)
        return made

    def _cache(self, case: Case) -> Any:
        settings = case.settings
        # The engine turns prefix caching off when a layer attends non-causally, before it plans.
        causal = not any(isinstance(s, FullSpec) and s.non_causal for s in case.specs)
        values: dict[str, Any] = {
            "block_size": settings.block_size,
            "num_gpu_blocks_override": settings.block_override,
            "enable_prefix_caching": settings.prefix_caching and causal,
            "mamba_cache_mode": settings.mamba_mode,
        }
        known = vars(self.base.cache_config)
        if "kv_cache_layout" in known:
            values["kv_cache_layout"] = settings.layout if settings.layout_origin == "forced" else None
        if settings.prefix_match_unit is not None or "prefix_match_unit" in known:
            values["prefix_match_unit"] = settings.prefix_match_unit
        return self._changed(self.base.cache_config, **values)

    @staticmethod
    def _model(case: Case) -> types.SimpleNamespace:
        settings = case.settings
        return types.SimpleNamespace(
            max_model_len=settings.model_len,
            original_max_model_len=-1 if settings.auto_fit else settings.model_len,
            hf_config=types.SimpleNamespace(model_type=settings.model_type),
            supports_kv_cache_grouping=False,
            architectures=["kvfuzz"],
            get_total_num_hidden_layers=lambda: sum(not layer.draft for layer in case.layers),
        )

    def _speculative(self, wanted: Speculative | None) -> Any:
        if wanted is None:
            return None
        made = object.__new__(self.speculative_class)
        hf_config = types.SimpleNamespace(num_nextn_predict_layers=wanted.modules)
        for name, value in (
            ("method", wanted.method),
            ("num_speculative_tokens", wanted.tokens),
            ("draft_model_config", types.SimpleNamespace(hf_config=hf_config)),
            ("disable_eagle_block_drop", False),
            ("num_speculative_tokens_per_batch_size", None),
        ):
            object.__setattr__(made, name, value)
        return made


def changed_settings(config: Any, settings: Settings) -> tuple[str, ...]:
    """Settings that planning altered although nothing asks it to (law G10)."""
    held = {
        "block_size": config.cache_config.block_size,
        "block_override": config.cache_config.num_gpu_blocks_override,
        "dcp": config.parallel_config.decode_context_parallel_size,
        "batched_tokens": config.scheduler_config.max_num_batched_tokens,
    }
    if not settings.auto_fit:
        held["model_len"] = config.model_config.max_model_len
    return tuple(f"settings.{name}" for name, value in held.items() if value != getattr(settings, name))
