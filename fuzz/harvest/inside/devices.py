"""The platform that vLLM believes it runs on: a plain CPU as it is, or a CUDA device that is not there.

A CPU's own features decide block sizes (AMX tiles) and state dtypes (AVX512-BF16). A harvest must not depend on the
machine it is made on, so both are held off. A CUDA device is vLLM's own platform class with a constant capability;
compiled modules, devices and custom operations that are absent are stood in for, and ``faked`` names them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from fuzz.harvest.inside import stand_ins

CUDA_PACKAGES = ("flashinfer", "deep_gemm", "cutlass", "quack", "cuda", "flash_attn_interface", "pynvml", "tilelang")
CUDA_MODULES = (
    "vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm._qutlass_C", "vllm._flashmla_C",
    "vllm._flashmla_extension_C", "vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C",
    "vllm.third_party.flashmla", "vllm.third_party.deep_gemm", "vllm.cumem_allocator",
)  # fmt: skip
DEVICE_BYTES = 80 * 2**30
"""Memory of the device that is not there; the memory for the cache is an input of the case, not taken from here."""


def hold_back_cpu_features() -> str:
    """Makes the CPU a plain one; returns the note for the harvest."""
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        if hasattr(torch.cpu, name):
            setattr(torch.cpu, name, lambda: False)
    return "CPU features held back: AMX tiles, AVX512-BF16"


def fake_cuda(major: int, minor: int) -> list[str]:
    """Makes vLLM believe in a CUDA device of capability ``major.minor``; returns notes for the harvest."""
    absent = tuple(name for name in CUDA_PACKAGES if importlib.util.find_spec(name) is None)
    stand_ins.add_stand_ins(absent, CUDA_MODULES)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"  # chosen by vLLM on such a device; here it would miss Triton
    _fake_torch(major, minor)
    operations = fake_operations()
    import vllm.platforms as platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class Device(CudaPlatformBase):  # type: ignore[misc]
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> Any:
            del device_id
            return DeviceCapability(major, minor)

        @classmethod
        def get_device_name(cls, device_id: int = 0) -> str:
            del device_id
            return f"faked sm{major}{minor}"

        @classmethod
        def get_device_uuid(cls, device_id: int = 0) -> str:
            return f"faked-{device_id}"

        @classmethod
        def get_device_total_memory(cls, device_id: int = 0) -> int:
            del device_id
            return DEVICE_BYTES

        @classmethod
        def is_fully_connected(cls, device_ids: list[int]) -> bool:
            del device_ids
            return True

        @classmethod
        def get_cuda_runtime_major(cls) -> int:
            return 12

        @classmethod
        def device_count(cls) -> int:
            return 64

        @classmethod
        def num_compute_units(cls, device_id: int = 0) -> int:
            del device_id
            return 132

        @classmethod
        def is_integrated_gpu(cls, device_id: int = 0) -> bool:
            del device_id
            return False

        @classmethod
        def import_kernels(cls) -> None:
            return None

        @classmethod
        def log_warnings(cls) -> None:
            return None

    platforms._current_platform = Device()
    _pretend_triton()
    return [
        f"platform faked: CUDA sm{major}{minor}",
        "packages stubbed: " + " ".join(sorted((*absent, *CUDA_MODULES))),
        operations,
    ]


class _TuningConfig:
    """A tuning choice of a kernel that is never compiled."""

    def __init__(self, kwargs: Any = None, num_warps: int = 4, num_stages: int = 3, **rest: Any) -> None:
        self.kwargs = kwargs or {}
        self.num_warps = num_warps
        self.num_stages = num_stages
        vars(self).update(rest)


def _pretend_triton() -> None:
    """Without Triton vLLM would take its old model runner. Its own placeholder serves, declared to be the real one."""
    from torch.utils import _triton as known_to_torch

    known_to_torch.has_triton_package()  # asked now, and remembered: torch would use what is put in its place
    import vllm.triton_utils as utils
    from vllm.triton_utils import importing

    if not utils.HAS_TRITON:
        utils.triton.Config = _TuningConfig
        for placeholder in (utils.triton, utils.tl):
            type(placeholder).__getattr__ = lambda _, name: stand_ins.stand_in_attribute(name)
        utils.HAS_TRITON = importing.HAS_TRITON = True
        stand_ins.add_stand_ins(("triton",), ())
        sys.modules["triton"] = utils.triton
        sys.modules["triton.language"] = utils.tl


def _always(value: Any) -> Callable[..., Any]:
    """A function that answers ``value`` whatever it is asked."""

    def answer(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return answer


class _Device:
    """A stream, an event, or the properties of a device: every attribute is there and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        self.multi_processor_count = 132
        self.total_memory = DEVICE_BYTES
        self.name = "faked"
        self.major, self.minor = 9, 0
        self.shared_memory_per_block_optin = 227 * 1024
        self.warp_size = 32
        self.cuda_stream = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _always(None)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def _fake_torch(major: int, minor: int) -> None:
    cuda: Any = torch.cuda
    properties = _Device()
    properties.major, properties.minor = major, minor
    cuda.get_device_properties = _always(properties)
    cuda.get_device_capability = _always((major, minor))
    cuda.current_device = lambda: 0
    cuda.device_count = lambda: 64
    cuda.set_device = _always(None)
    cuda.synchronize = _always(None)
    cuda.empty_cache = _always(None)
    cuda.mem_get_info = _always((DEVICE_BYTES, DEVICE_BYTES))
    cuda.current_stream = _always(_Device())
    cuda.Stream = cuda.Event = _Device
    torch.Event = torch.Stream = _Device
    accelerator: Any = torch.accelerator
    for name in ("synchronize", "empty_cache", "set_device_index", "max_memory_allocated", "memory_allocated"):
        setattr(accelerator, name, _always(0))
    accelerator.current_device_index = lambda: 0
    accelerator.device_count = lambda: 64
    accelerator.is_available = lambda: True
    accelerator.current_stream = _always(_Device())


class _Operation:
    """A custom operation that does nothing; its overloads are itself."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args else next(iter(kwargs.values()), None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def has_operations() -> bool:
    """Whether this tree's compiled operations are there; a tree of Python files alone has none."""
    return hasattr(torch.ops._C, "silu_and_mul")


def fake_operations() -> str:
    """Custom operations that no extension registers answer with their first argument; returns the note on it."""
    kind = type(torch.ops._C)
    original = kind.__getattr__

    def lenient(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except AttributeError:
            if name.startswith("__") or not str(self.name).startswith(("_C", "_moe_C", "vllm", "_vllm")):
                raise

        return _Operation(f"{self.name}.{name}")

    kind.__getattr__ = lenient
    library: Any = torch.library
    register = library.register_fake

    def register_fake(op: Any, func: Any = None, **kwargs: Any) -> Any:
        def attempt(function: Any) -> Any:
            try:
                return register(op, function, **kwargs)
            except (RuntimeError, AttributeError):
                return function  # the operation does not exist here

        return attempt if func is None else attempt(func)

    library.register_fake = register_fake
    return "custom operations that are absent answer with what they are given"
