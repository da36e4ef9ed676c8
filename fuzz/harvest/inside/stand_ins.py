"""What is put in place of packages, processes and devices that building a model must not need.

Loaded in the harvesting process, before vLLM. Everything replaced is named in the harvest (``faked``): nothing here
decides a layer's geometry.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

VISION_PACKAGES = ("torchvision", "torchaudio", "torchcodec")
"""The registry's builds do not load beside a CPU torch. None in ``sys.modules`` breaks classes that test for them
by attribute, so an empty stand-in is imported instead."""

HELPERS = ("compressed_tensors", "einops", "numba")
"""Packages that models import at the top and call only when they run; a stand-in is used where one is absent."""

META = torch.device("meta")


class _Nothing(type):
    """A class whose attributes are further such classes: enough for annotations, default arguments, decorators
    and base classes.
    """

    def __getattr__(cls, name: str) -> Any:
        return stand_in_attribute(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "kvfuzz_stand_in" not in vars(cls):
            return super().__call__(*args, **kwargs)  # a class of vLLM that has a stand-in for a base
        return args[0] if len(args) == 1 and callable(args[0]) else _nothing(cls.__name__)

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__


def stand_in_attribute(name: str) -> Any:
    """What a stand-in answers for its attribute ``name``."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _nothing(name)


def _nothing(name: str) -> Any:
    return _Nothing(name, (), {"kvfuzz_stand_in": True})


class _StandIn(types.ModuleType):
    """A module in which every name is there."""

    def __getattr__(self, name: str) -> Any:
        return stand_in_attribute(name)


class _Finder:
    """Finds a stand-in for each package named, and for every module below it."""

    def __init__(self, packages: tuple[str, ...], modules: tuple[str, ...] = ()) -> None:
        self._packages = packages
        self._modules = modules

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name.partition(".")[0] not in self._packages and not self._has_module(name):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def _has_module(self, name: str) -> bool:
        return any(name == module or name.startswith(module + ".") for module in self._modules)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StandIn(spec.name)
        module.__version__ = "0.0"  # type: ignore[attr-defined]
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def stub_packages(always: tuple[str, ...], if_absent: tuple[str, ...]) -> str:
    """Puts stand-ins in the place of packages; returns the note for the harvest.

    Transformers must go on believing that those of ``always`` are absent, or it would use them: it is asked
    first, and remembers.
    """
    for package in always:
        sys.modules[package] = None  # type: ignore[assignment]
    from transformers.utils import import_utils

    for package in always:
        getattr(import_utils, f"is_{package}_available")()
    importlib.import_module("transformers.audio_utils")
    for package in always:
        del sys.modules[package]
    packages = (*always, *(package for package in if_absent if importlib.util.find_spec(package) is None))
    sys.meta_path.insert(0, _Finder(packages))
    return "packages stubbed: " + " ".join(sorted(packages))


def add_stand_ins(packages: tuple[str, ...], modules: tuple[str, ...]) -> None:
    """Puts stand-ins in the place of whole packages and of single modules."""
    sys.meta_path.insert(0, _Finder(packages, modules))


FACTORIES = frozenset(
    getattr(torch, name)
    for name in (
        "arange", "empty", "empty_strided", "eye", "full", "linspace", "logspace", "ones", "rand", "randint", "randn",
        "randperm", "range", "scalar_tensor", "tensor", "zeros", "tril_indices", "triu_indices", "as_tensor",
        "from_numpy", "hann_window", "asarray",
    )
    if hasattr(torch, name)
)  # fmt: skip
"""Functions that make tensors out of nothing."""


class OnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Makes every tensor on the meta device, whatever device is asked for, and answers reads of values.

    A value read from a tensor without values is 0, an empty list or False: ``reads`` counts such answers, and a
    harvest with any is not exact.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if func in FACTORIES:
            if func is torch.from_numpy:
                return torch.empty(args[0].shape, dtype=torch.as_tensor(args[0][:0]).dtype, device=META)
            kwargs["device"] = META
            kwargs.pop("pin_memory", None)
            return func(*args, **kwargs)
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = META
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        if isinstance(first, torch.Tensor) and first.is_meta:
            if name in ("cpu", "cuda", "pin_memory"):
                return first
            if name == "to":
                rest = [META if isinstance(a, torch.device | str) else a for a in args[1:]]
                return func(first, *rest, **kwargs)
            if name in ("item", "__int__", "__float__", "__index__", "__bool__"):
                self.reads += 1
                return {"__float__": 0.0, "__bool__": False}.get(name, 0)
            if name in ("tolist", "numpy"):
                self.reads += 1
                return _zeros(tuple(first.shape)) if name == "tolist" else torch.zeros(first.shape).numpy()
            if name == "equal":
                self.reads += 1
                return False
        return func(*args, **kwargs)


def _zeros(shape: tuple[int, ...]) -> Any:
    return 0 if not shape else [_zeros(shape[1:]) for _ in range(shape[0])]


class _Members:
    """What is asked of a process group's handle: how many members, and which one this is."""

    def __init__(self, size: int, rank: int) -> None:
        self._size = size
        self._rank = rank

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank


def make_group_class(base: type) -> type:
    """A process group of any size whose other members do not exist: a subclass of vLLM's ``GroupCoordinator``.

    Collectives give back what they are given. Building a model calls few of them, and no geometry comes from one.
    """

    class LoneGroup(base):  # type: ignore[misc]
        def __init__(self, name: str, size: int, rank: int) -> None:
            self.unique_name = f"{name}:0"
            self.rank = rank
            self.local_rank = rank
            self.ranks = list(range(size))
            self.world_size = size
            self.rank_in_group = rank
            self.group_ranks = [self.ranks]
            self.device_index = 0
            self.device = torch.device("cpu")
            self.cpu_group = self.device_group = _Members(size, rank)
            self.device_communicator = None
            self.mq_broadcaster = None
            self.use_device_communicator = False
            self.use_custom_op_call = False
            self.use_cpu_custom_send_recv = False

        @property
        def first_rank(self) -> int:
            return 0

        @property
        def last_rank(self) -> int:
            return int(self.world_size) - 1

        def all_reduce(self, input_: Any) -> Any:
            return input_

        def all_gather(self, input_: Any, dim: int = -1) -> Any:
            return torch.cat([input_] * self.world_size, dim=dim)

        def reduce_scatter(self, input_: Any, dim: int = -1) -> Any:
            return input_.chunk(self.world_size, dim=dim)[0]

        def broadcast(self, input_: Any, src: int = 0) -> Any:
            del src
            return input_

        def broadcast_object(self, obj: Any = None, src: int = 0) -> Any:
            del src
            return obj

        def barrier(self) -> None:
            return None

    return LoneGroup


GROUPS = {
    "_WORLD": "world", "_INNER_DP_WORLD": "world", "_TP": "tp", "_ETP": "tp", "_DCP": "dcp", "_PP": "pp",
    "_EP": "tp", "_EPLB": "tp", "_DP": "", "_PCP": "", "_ENGRAM_DP": "",
}  # fmt: skip
"""vLLM's module globals of process groups, and the size each has; one without a name has one member."""


def _all_on_one_node(group: _Members, source_rank: int = 0) -> list[bool]:
    del source_rank
    return [True] * group.size()


def set_groups(parallel_state: Any, sizes: dict[str, int], stage: int) -> None:
    """Assigns groups to vLLM's module globals: tensor rank 0 of pipeline stage ``stage``, all on one node."""
    for module in list(sys.modules.values()):
        if "in_the_same_node_as" in vars(module):
            vars(module)["in_the_same_node_as"] = _all_on_one_node
    lone = make_group_class(parallel_state.GroupCoordinator)
    for variable, name in GROUPS.items():
        if hasattr(parallel_state, variable):
            size = sizes.get(name, 1)
            rank = stage if name == "pp" else stage * sizes["tp"] if name == "world" else 0
            setattr(parallel_state, variable, lone(variable.strip("_").lower(), size, rank))
