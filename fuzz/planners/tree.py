"""One imported tree of vLLM: its modules, what it can express, and what its planner does.

Loaded inside a worker; vLLM's modules come in as arguments, so nothing here imports it. Differences between
0.26 and 0.33 are found by looking at the tree, not at its version: forks have versions of their own.
"""

from __future__ import annotations

import dataclasses
import functools
import platform
from types import ModuleType
from typing import Any, Literal

from fuzz.planners.isolate import replace_everywhere
from fuzz.planners.protocol import PROTOCOL, Hello
from fuzz.planners.tree_config import Configs
from fuzz.planners.tree_specs import Specs


class Tree:
    """Modules, spec translation and config building of one tree."""

    def __init__(self, modules: dict[str, ModuleType], builder: str = "") -> None:
        self.modules = modules
        self.utils = modules["utils"]
        self.planner = modules.get("planning", modules["utils"])
        self.interface = modules["interface"]
        self.specs = Specs(modules)
        self.configs = Configs(modules, builder)
        register = getattr(modules["managers"], "register_all_kvcache_specs", None)
        if register is not None:
            register(self.configs.base)
        # vLLM makes a tensor for each width it asks for, which was a third of all planning.
        _remember(self.interface, "get_dtype_size")

    def function(self, name: str) -> Any:
        """A function of the planner, wherever this generation keeps it; None when it has none."""
        return getattr(self.planner, name, None) or getattr(self.utils, name, None)

    def has_field(self, record: str, field: str) -> bool:
        """Whether one of the interface's dataclasses has ``field``."""
        cls = getattr(self.interface, record, None)
        return cls is not None and any(f.name == field for f in dataclasses.fields(cls))

    def capabilities(self) -> tuple[str, ...]:
        """Names of what this planner does, for choosing a rule set."""
        found = {
            "layouts": hasattr(self.configs.base.cache_config, "kv_cache_layout"),
            "packed": hasattr(self.planner, "_get_packed_kv_cache_groups"),
            "window_fallback": hasattr(self.planner, "_try_get_full_allocation_fallback_groups"),
            "stride_alignment": self.has_field("KVCacheSpec", "block_stride_alignment"),
            "kernel_block_alignment": self.specs.aligns_by_kernel_block,
            "layer_records": self.has_field("KVCacheTensor", "layers"),
            "global_groups": self.function("get_global_kv_cache_groups") is not None,
            "draft_flag_on_spec": self.has_field("KVCacheSpec", "is_draft"),
            "hidden_state_scaling": hasattr(self.planner, "_ensure_min_page_size"),
        }
        return tuple(sorted(name for name, present in found.items() if present))

    def generation(self) -> Literal["packed", "tuples"]:
        """The family of grouping rules: block-outermost packing, or layer tuples (0.26 to 0.28)."""
        return "packed" if hasattr(self.planner, "_get_packed_kv_cache_groups") else "tuples"

    def hello(self, *, import_seconds: float, resident_bytes: int, baseline_bytes: int) -> Hello:
        """What kvfuzz must know before it asks."""
        vllm = self.modules["vllm"]
        return Hello(
            protocol=PROTOCOL,
            version=str(getattr(vllm, "__version__", "unknown")),
            python=platform.python_version(),
            planner_module=self.planner.__name__,
            planner_file=str(self.planner.__file__),
            replication_field=self.specs.replication_field,
            generation=self.generation(),
            capabilities=self.capabilities(),
            fields=self.specs.known_fields(),
            import_seconds=import_seconds,
            resident_bytes=resident_bytes,
            baseline_bytes=baseline_bytes,
        )


def _remember(module: ModuleType, name: str) -> None:
    """Has a function of vLLM's that depends on its arguments alone answer from memory the second time."""
    function = getattr(module, name, None)
    if function is not None:
        replace_everywhere(name, function, functools.cache(function))


def open_tree(modules: dict[str, ModuleType], builder: str = "") -> Tree:
    """The tree behind ``modules``, ready to plan, through ``builder`` where one is named. Raises BuilderError."""
    return Tree(modules, builder)
