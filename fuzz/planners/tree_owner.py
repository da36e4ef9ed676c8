"""Who decides the grouping of a case: vLLM's own rules, the model's class, or a builder named for the planner (0.33).

The engine asks the builder that its platform names, and the default one asks the model's class where that has the
hook. Both calls stay vLLM's: here the platform is made to name the builder, and the configuration is given what the
default builder looks up. Model classes are imported only in trees where some file of models speaks of the hook.

What an owner cannot be given here, its platform or a part of the configuration that no case carries, is told, never
made up: the answer is then ``Unsupported``.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import traceback
import types
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from fuzz.planners.protocol import words_of
from fuzz.planners.tree_specs import Inexpressible
from oracles.case import Case

HOOK = "get_kv_cache_groups"
REGISTRY = "vllm.model_executor.models.registry"
INTERFACES = "vllm.model_executor.models.interfaces"
MODEL_FOLDERS = ("model_executor", "models")
"""Below the package ``vllm``: where classes of models, and what they inherit from, are kept."""

ABSENCES = (ImportError, OSError, AttributeError, RuntimeError)
"""What an owner raises that misses its platform: packages, devices and their operations, attributes of None."""


class BuilderError(Exception):
    """The builder named for the planner cannot be used in this tree; the message says why, and the remedy."""


class NotCarried(Exception):
    """An owner read what no case carries. Not an AttributeError: a default must not take its place in silence."""


class Owner:
    """Code other than vLLM's own rules that groups one case; ``missed`` is what it read in vain."""

    def __init__(self, name: str, field: str, files: frozenset[str], hook: Any) -> None:
        self.name = name
        self.field = field
        self.hook = hook
        self.missed: list[str] = []
        self._files = files

    def absence(self, errors: Iterable[BaseException]) -> str:
        """Why the owner could not do its work here; empty where what went wrong is its own doing."""
        if self.missed:
            return f"{self.name} reads {self.missed[0]}, which the case does not carry"
        for error in errors:
            frames = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
            own = isinstance(error, NotImplementedError) or not isinstance(error, ABSENCES)
            if not own and frames & self._files:
                words = f"{type(error).__name__}: {words_of(error, 300)}"[:300]
                return f"{self.name} may need what is not here, its platform or settings of the model ({words})"
        return ""


class Owners:
    """Finds the owner of a case in one tree."""

    def __init__(self, modules: dict[str, ModuleType], builder: str = "") -> None:
        self._modules = modules
        self._builder: Any = None
        self._hooks: dict[str, Any] = {}
        self._some_model: bool | None = None
        if builder:
            self._builder = use_builder(modules, builder)

    def of(self, case: Case) -> Owner | None:
        """The owner of ``case``; None where vLLM's own rules group it. Raises Inexpressible."""
        if "builder" not in self._modules:
            return None
        architecture = case.settings.architecture
        hook = self._hook(architecture) if architecture is not None else None
        if self._builder is not None:
            name = f"the builder {self._builder.__module__}.{self._builder.__qualname__}"
            own = [self._modules[short].__name__ for short in ("builder", "planning")]
            classes = [cls for cls in self._builder.__mro__ if cls.__module__ not in (*own, "abc", "builtins")]
            return Owner(name, "builder", files_of(classes), hook)
        if hook is None:
            return None
        classes = [cls for cls in hook.__mro__ if HOOK in vars(cls)]
        return Owner(f"the model class {hook.__qualname__}", "settings.architecture", files_of(classes), hook)

    def _hook(self, architecture: str) -> Any:
        if architecture not in self._hooks:
            self._hooks[architecture] = self._find(architecture)
        return self._hooks[architecture]

    def _find(self, architecture: str) -> Any:
        """The class of ``architecture`` where it owns its grouping, else None."""
        registered = importlib.import_module(REGISTRY).ModelRegistry.models.get(architecture)
        if registered is None:
            why = f"this tree has no model class {architecture}, and so none that could own its grouping"
            raise Inexpressible("settings.architecture", why)
        # A class that is imported already, by an overlay, may have been given the hook there.
        lazily = getattr(registered, "module_name", None)
        if lazily is not None and lazily not in sys.modules and not self._some_model_has_a_hook():
            return None
        try:
            _stub_packages()
            found = registered.load_model_cls()
        except Exception as error:
            words = words_of(error, 300)
            why = f"{architecture} may own its grouping, and its class cannot be imported here: {words}"[:400]
            raise Inexpressible("settings.architecture", why) from error
        return found if importlib.import_module(INTERFACES).supports_kv_cache_grouping(found) else None

    def _some_model_has_a_hook(self) -> bool:
        """Whether a file of the tree's models, but for the interface itself, speaks of the hook: 0.1 s, once."""
        if self._some_model is None:
            root = Path(str(self._modules["vllm"].__file__)).parent
            interface = root.joinpath(*INTERFACES.split(".")[1:]).with_suffix(".py")
            self._some_model = any(
                HOOK.encode() in path.read_bytes()
                for folder in MODEL_FOLDERS
                for path in sorted((root / folder).rglob("*.py"))
                if path != interface
            )
        return self._some_model


def use_builder(modules: dict[str, ModuleType], name: str) -> Any:
    """Makes vLLM's platform name the builder ``name``; its class. Raises BuilderError."""
    if "builder" not in modules:
        version = getattr(modules["vllm"], "__version__", "of unknown version")
        raise BuilderError(f"vLLM {version} has no KVCacheConfigBuilder; use 0.33 or later, or leave builder out")
    place, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(place), attribute)
    except Exception as error:
        words = f"{type(error).__name__}: {words_of(error, 400)}"[:400]
        raise BuilderError(f"{name} cannot be imported ({words}); correct it, or name its python") from error
    if not (isinstance(found, type) and issubclass(found, modules["builder"].KVCacheConfigBuilder)):
        raise BuilderError(f"{name} is no subclass of vLLM's KVCacheConfigBuilder; name one that is")
    platform = type(importlib.import_module("vllm.platforms").current_platform)
    platform.get_kv_cache_config_builder_cls = classmethod(lambda *_: name)
    return found


def files_of(classes: Iterable[type]) -> frozenset[str]:
    """The source files in which classes are defined."""
    modules = (sys.modules.get(cls.__module__) for cls in classes)
    return frozenset(str(module.__file__) for module in modules if module is not None and module.__file__)


def _stub_packages() -> None:
    """Lets classes be imported whose packages are absent, as harvesting does."""
    from fuzz.harvest.inside import stand_ins

    if not any(type(finder) is stand_ins._Finder for finder in sys.meta_path):
        stand_ins.stub_packages(stand_ins.VISION_PACKAGES, stand_ins.HELPERS)


class Carried:
    """A part of the configuration with the values that a case carries; reading any other is noted and raises."""

    def __init__(self, path: str, owner: Owner, values: dict[str, Any]) -> None:
        vars(self).update(values)
        self._kvfuzz = path, owner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        path, owner = self._kvfuzz
        owner.missed.append(f"{path}.{name}")
        raise NotCarried(owner.missed[-1])


def model_of(case: Case, owner: Owner, stub: types.SimpleNamespace, text: str) -> Any:
    """The model's configuration for a case that ``owner`` groups.

    ``stub`` has what planning itself reads; ``text`` is the model's ``config.json``, or empty where it is not at hand.

    Raises:
        Inexpressible: vLLM does not read that configuration.
    """
    values = dict(vars(stub))
    architecture = case.settings.architecture
    if architecture is not None:
        registry = importlib.import_module(REGISTRY).ModelRegistry
        values |= {"architecture": architecture, "architectures": [architecture], "registry": registry}
        values |= {"model_impl": "auto", "convert_type": "none", "runner_type": "generate"}
    if text:
        values["hf_config"] = _published(text)
        reader = importlib.import_module("vllm.transformers_utils.config")
        values["hf_text_config"] = reader.get_hf_text_config(values["hf_config"])
    else:
        values["hf_config"] = Carried("hf_config", owner, vars(stub.hf_config))
    values["supports_kv_cache_grouping"] = owner.hook is not None
    return Carried("model_config", owner, values)


def _published(text: str) -> Any:
    """A ``config.json`` as vLLM reads it."""
    reader = importlib.import_module("vllm.transformers_utils.config")
    with tempfile.TemporaryDirectory(prefix="kvfuzz-config-") as folder:
        (Path(folder) / "config.json").write_text(json.dumps(json.loads(text)))
        try:
            return reader.get_config(folder, trust_remote_code=False)
        except Exception as error:
            why = f"vLLM does not read the configuration: {words_of(error, 300)}"[:300]
            raise Inexpressible("hf_config", why) from error
