"""The contract ``isolate`` over any tree: replicated attention layers are planned apart from all others.

When a map holds both, each part goes through the tree's own grouping and the results are concatenated, sharded
groups first. A map of one mode takes the existing path, untouched. The grouping function is replaced where
it is defined and wherever another module of vLLM holds a reference, and 0.33's builder path is covered too, so
that a platform's builder or a model that owns its grouping is asked twice rather than bypassed.

This file needs the standard library only: it also runs inside trees where kvfuzz is not installed.

Source: DESIGN 2 and VLLM.md 7. Our own lines; nothing is taken from a patch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

ANNOTATORS = ("_annotate_eagle_groups", "_annotate_eagle_groups_deepseek_v4")
"""Functions that mark draft groups during grouping. They must see the whole map: run on a part, the rule
"the last layer is a draft's" would mark a target group."""


def is_replicated(spec: Any) -> bool:
    """Whether DCP keeps this layer's whole cache on every rank. Recurrent state counts with the target."""
    if hasattr(spec, "dcp_replicated"):
        return bool(spec.dcp_replicated)
    is_attention = hasattr(spec, "num_kv_heads")
    return is_attention and getattr(spec, "dcp_sharded", True) is False


def split(specs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the sharded part, the replicated part), each in the map's order."""
    replicated = {name: spec for name, spec in specs.items() if is_replicated(spec)}
    sharded = {name: spec for name, spec in specs.items() if name not in replicated}
    return sharded, replicated


def apply(planner: ModuleType) -> None:
    """Makes the tree behind ``planner`` keep the contract."""
    _replace(planner, "get_kv_cache_groups", _in_parts(planner, specs_at=1))
    if hasattr(planner, "get_kv_cache_groups_from_builder"):
        _replace(planner, "get_kv_cache_groups_from_builder", _in_parts(planner, specs_at=2))


def _in_parts(planner: ModuleType, *, specs_at: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator for a grouping function that takes the config just before argument ``specs_at``, the map."""

    def decorate(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def grouped(*args: Any, **kwargs: Any) -> Any:
            specs = kwargs["kv_cache_spec"] if "kv_cache_spec" in kwargs else args[specs_at]
            sharded, replicated = split(specs)
            if not sharded or not replicated:
                return original(*args, **kwargs)
            groups = []
            with _Annotators(planner) as annotators:
                for part in (sharded, replicated):
                    if "kv_cache_spec" in kwargs:
                        groups += original(*args, **{**kwargs, "kv_cache_spec": part})
                    else:
                        groups += original(*args[:specs_at], part, *args[specs_at + 1 :], **kwargs)
            # Without the hybrid manager, grouping converts layers in the map it is given.
            specs.update(sharded)
            specs.update(replicated)
            config = kwargs["vllm_config"] if "vllm_config" in kwargs else args[specs_at - 1]
            annotators.run_on_all(config, specs, groups)
            return groups

        return grouped

    return decorate


class _Annotators:
    """Holds back the tree's draft annotators while parts are planned, and runs them on the whole afterwards."""

    def __init__(self, planner: ModuleType) -> None:
        self._planner = planner
        self._held = {name: getattr(planner, name) for name in ANNOTATORS if hasattr(planner, name)}
        self._called: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> _Annotators:
        for name in self._held:
            setattr(self._planner, name, self._hold(name))
        return self

    def _hold(self, name: str) -> Callable[..., None]:
        def held(_config: Any, _specs: Any, _groups: Any, *args: Any, **kwargs: Any) -> None:
            # Either part asking for the positional rule is the path on which it is valid.
            before = self._called.get(name, {})
            self._called[name] = {**before, **{k: before.get(k) or v for k, v in kwargs.items()}}
            if args:
                self._called[name]["*"] = args

        return held

    def __exit__(self, *_: object) -> None:
        for name, function in self._held.items():
            setattr(self._planner, name, function)

    def run_on_all(self, config: Any, specs: dict[str, Any], groups: list[Any]) -> None:
        """Marks the draft groups of the whole map. A part that took a path without annotation (one uniform
        group) still needs its mark, so the annotator runs whether or not a part called it.
        """
        for name, function in self._held.items():
            kwargs = dict(self._called.get(name, {}))
            args = kwargs.pop("*", ())
            if not args and "use_trailing_layer_fallback" in function.__code__.co_varnames:
                uses = getattr(self._planner, "_uses_trailing_mtp_layers", None)
                kwargs["use_trailing_layer_fallback"] = bool(uses and uses(config))
            function(config, specs, groups, *args, **kwargs)


def _replace(planner: ModuleType, name: str, decorate: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Decorates ``planner.name`` there and in every module of vLLM that has already taken it by name."""
    original = getattr(planner, name)
    replace_everywhere(name, original, decorate(original))


def replace_everywhere(name: str, held: Any, called: Any) -> None:
    """Puts ``called`` in the place of ``held`` in every module of vLLM that has it by ``name``."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "vllm" and getattr(module, "__dict__", {}).get(name) is held:
            setattr(module, name, called)
