"""Translation of layer specs between the vocabulary and one tree of vLLM, without loss in either direction.

A case field that the tree cannot express raises ``Inexpressible``; a fact of the tree that the vocabulary has
no name for goes to a group's ``extra``.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from fractions import Fraction
from types import ModuleType
from typing import Any, Literal

import msgspec

from oracles.case import SPEC_CLASSES, LayerSpec, MultipleOf, Spec, kind_of
from oracles.specs import fields_of

CLASS_NAMES = {
    "full": "FullAttentionSpec",
    "mla": "MLAAttentionSpec",
    "hidden_state": "HiddenStateCacheSpec",
    "rswa": "RSWASpec",
    "sink": "SinkFullAttentionSpec",
    "chunked_local": "ChunkedLocalAttentionSpec",
    "sliding_window": "SlidingWindowSpec",
    "sliding_window_mla": "SlidingWindowMLASpec",
    "circular_buffer": "CircularBufferSpec",
    "cross": "CrossAttentionSpec",
    "encoder_only": "EncoderOnlyAttentionSpec",
    "mamba": "MambaSpec",
}

OLD_NAMES = {"tokens_per_state": "compress_ratio"}
"""Fields that older trees know by another name."""

NEVER_LOST = {"dcp_sharded", "dcp_replicated", "is_draft", "num_heads", "tokens_per_state"}
"""Tree fields that reach us another way: as the mode, as the layer's draft mark, or fixed for their kind."""


class Inexpressible(Exception):
    """The tree has no way to say this field of the case."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, reason)
        self.field = field
        self.reason = reason


def sizes_itself(spec: LayerSpec) -> bool:
    """Whether a tree that is not told the bytes of a state would add scales to these by rules of its own."""
    quant_mode = getattr(spec, "kv_quant_mode", "")
    return "PER_TOKEN_HEAD" in quant_mode or getattr(spec, "cache_dtype_str", None) == "fp8_ds_mla"


class Specs:
    """Builds the tree's spec objects from case specs, and reads them back."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.torch = modules["torch"]
        self.interface = modules["interface"]
        self.backend = modules.get("backend")
        self.mamba = modules.get("mamba")
        self.classes: dict[str, Any] = {
            kind: cls for kind, name in CLASS_NAMES.items() if (cls := getattr(self.interface, name, None))
        }
        self.kinds = {cls: kind for kind, cls in self.classes.items()}
        self.tree_fields: dict[Any, dict[str, Any]] = {
            cls: {f.name: f for f in dataclasses.fields(cls) if f.init} for cls in self.classes.values()
        }
        self.dtype_names = {
            getattr(self.torch, name): name
            for name in ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2",
                         "int64", "int32", "int16", "int8", "uint8")
        }  # fmt: skip
        alignment = self.tree_fields[self.classes["full"]].get("block_stride_alignment")
        self.aligns_by_kernel_block = alignment is not None and "MultipleOf" in str(alignment.type)
        # 0.26 keeps head_size_v for latent caches too, without using it.
        self.idle_value_heads = {
            cls
            for kind in ("mla", "hidden_state", "sliding_window_mla")
            if (cls := self.classes.get(kind)) is not None
            and (field := self.tree_fields[cls].get("head_size_v")) is not None
            and field.default != 0
        }
        self._read: dict[Any, tuple[Spec, dict[str, str]]] = {}

    @property
    def replication_field(self) -> Literal["dcp_sharded", "dcp_replicated", ""]:
        """The name of the field by which this tree marks a replicated cache."""
        fields = self.tree_fields[self.classes["full"]]
        if "dcp_sharded" in fields:
            return "dcp_sharded"
        return "dcp_replicated" if "dcp_replicated" in fields else ""

    def known_fields(self) -> dict[str, tuple[str, ...]]:
        """Case fields of each kind that this tree can express."""
        known = {}
        for kind, cls in self.classes.items():
            fields = self.tree_fields[cls]
            names = [
                f.name
                for f in fields_of(SPEC_CLASSES[kind])
                if f.name in fields
                or OLD_NAMES.get(f.name) in fields
                or (f.name == "replicated" and bool(self.replication_field) and self.replication_field in fields)
            ]
            known[kind] = tuple(sorted(names))
        return known

    def build(self, spec: LayerSpec) -> Any:
        """The tree's object for ``spec``. Raises Inexpressible."""
        kind = kind_of(spec)
        cls = self.classes.get(kind)
        if cls is None:
            raise Inexpressible("kind", f"this tree has no {CLASS_NAMES[kind]}")
        fields = self.tree_fields[cls]
        if "state_content_bytes" not in fields and sizes_itself(spec):
            raise Inexpressible("kv_quant_mode", "this tree works out the bytes of quantised states by itself")
        given: dict[str, Any] = {}
        for field in fields_of(type(spec)):
            value = getattr(spec, field.name)
            if field.name == "replicated":
                self._set_replication(given, fields, bool(value))
                continue
            name = field.name if field.name in fields else OLD_NAMES.get(field.name, field.name)
            if name not in fields:
                if value != field.default:
                    raise Inexpressible(field.name, f"this tree's {cls.__name__} has no such field")
                continue
            if value == field.default and field.name in ("head_size_v", "block_stride_alignment", "mamba_type"):
                continue  # the tree's own default says the same
            given[name] = self._to_tree(name, value)
        return cls(**given)

    def _set_replication(self, given: dict[str, Any], fields: dict[str, Any], replicated: bool) -> None:
        if "dcp_sharded" in fields:
            given["dcp_sharded"] = not replicated
        elif "dcp_replicated" in fields:
            given["dcp_replicated"] = replicated
        elif replicated:
            raise Inexpressible("replicated", "this tree does not know replicated caches of this kind")

    def _to_tree(self, name: str, value: Any) -> Any:
        if name == "dtype":
            return getattr(self.torch, value)
        if name == "dtypes":
            return tuple(getattr(self.torch, item) for item in value)
        if name in ("tokens_per_state", "compress_ratio") and isinstance(value, str):
            if name == "compress_ratio":
                raise Inexpressible("tokens_per_state", "this tree takes whole compression ratios only")
            return Fraction(value)
        if isinstance(value, MultipleOf):
            if not self.aligns_by_kernel_block:
                raise Inexpressible("block_stride_alignment", "this tree aligns strides by bytes only")
            return self.backend.MultipleOf(value.multiple_of)  # type: ignore[union-attr]
        if name == "kv_quant_mode":
            return self._member(self.interface.KVQuantMode, name, value)
        if name == "cache_role":
            return self._member(self.interface.SparseCacheRole, name, value.upper())
        if name == "mamba_type":
            return self._member(self.mamba.MambaAttentionBackendEnum, name, value)  # type: ignore[union-attr]
        return value

    @staticmethod
    def _member(kind: Any, field: str, name: str) -> Any:
        try:
            return kind[name]
        except KeyError:
            raise Inexpressible(field, f"this tree has no {kind.__name__}.{name}") from None

    def read(self, obj: Any) -> tuple[Spec, dict[str, str]]:
        """A tree's spec in the vocabulary, and what the vocabulary has no name for."""
        found = self._read.get(obj)
        if found is None:
            if len(self._read) > 20_000:  # random specs rarely repeat; keep the memory bounded
                self._read.clear()
            found = self._read[obj] = self._read_fresh(obj)
        return found

    def _read_fresh(self, obj: Any) -> tuple[Spec, dict[str, str]]:
        extra: dict[str, str] = {}
        cls = next((c for c in type(obj).__mro__ if c in self.kinds), None)
        if cls is None:
            raise TypeError(f"a group's spec is a {type(obj).__name__}, which is no cache spec known here")
        if cls is not type(obj):
            extra["class"] = type(obj).__name__
        kind = self.kinds[cls]
        ours = SPEC_CLASSES[kind]
        facts: dict[str, Any] = {"kind": kind}
        used: set[str] = set()
        for field in fields_of(ours):
            if field.name == "replicated":
                facts["replicated"] = self._read_replicated(obj)
                continue
            name = field.name if hasattr(obj, field.name) else OLD_NAMES.get(field.name, field.name)
            if hasattr(obj, name):
                used.add(name)
                facts[field.name] = self._from_tree(getattr(obj, name))
        if cls in self.idle_value_heads:
            facts["head_size_v"] = 0
        for fact in dataclasses.fields(obj):
            if fact.name in used or fact.name in NEVER_LOST:
                continue
            value = getattr(obj, fact.name)
            if value != fact.default:
                extra[fact.name] = repr(value)[:200]
        return msgspec.convert(facts, type=Spec, strict=True), extra

    @staticmethod
    def _read_replicated(obj: Any) -> bool:
        if hasattr(obj, "dcp_sharded"):
            return not obj.dcp_sharded
        return bool(getattr(obj, "dcp_replicated", False))

    def _from_tree(self, value: Any) -> Any:
        if value in self.dtype_names if isinstance(value, self.torch.dtype) else False:
            return self.dtype_names[value]
        if isinstance(value, Fraction):
            return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
        if isinstance(value, enum.Enum):
            return value.value if isinstance(value, str) else value.name
        if isinstance(value, tuple | list):
            return [self._from_tree(item) for item in value]
        if type(value).__name__ == "MultipleOf":
            return {"multiple_of": value.base}
        return value


def copies(obj: Any, count: int) -> list[Any]:
    """``count`` distinct equal objects: each layer of a model makes its own spec."""
    return [obj, *(copy.copy(obj) for _ in range(count - 1))]
