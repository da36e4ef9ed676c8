"""Canary: the last record of every worker's pool starts one byte late."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fuzz.planners.planting import plant


def apply(planner: ModuleType) -> None:
    """Spoils the plans of the tree behind ``planner``."""

    @plant(planner, "get_kv_cache_configs")
    def _(original: Any, *args: Any, **kwargs: Any) -> Any:
        configs = original(*args, **kwargs)
        for config in configs:
            if config.kv_cache_tensors:
                last = config.kv_cache_tensors[-1]
                object.__setattr__(last, "offset", last.offset + 1)
        return configs
