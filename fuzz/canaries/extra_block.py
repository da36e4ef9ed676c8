"""Canary: every worker is told of one block more than its pool holds."""

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
            object.__setattr__(config, "num_blocks", config.num_blocks + 1)
        return configs
