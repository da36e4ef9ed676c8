"""Canary: the last group of a plan loses its last layer."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from fuzz.planners.planting import plant


def apply(planner: ModuleType) -> None:
    """Spoils the plans of the tree behind ``planner``."""
    for name in ("get_kv_cache_groups", "get_kv_cache_groups_from_builder"):
        if not hasattr(planner, name):
            continue

        @plant(planner, name)
        def _(original: Any, *args: Any, **kwargs: Any) -> Any:
            groups = original(*args, **kwargs)
            if groups and len(groups[-1].layer_names) > 1:
                groups[-1].layer_names.pop()
            return groups
