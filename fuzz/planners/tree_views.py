"""Plans a case and lets vLLM make the layers' views of the pool that it planned (0.29 and later).

``create_kv_cache_views`` is the function by which vLLM's workers turn a record into one tensor a layer; it needs a
buffer and no model runner, so it is called for real. What a worker does with the views afterwards (blocks of an
attention backend's own size, shapes of recurrent states) needs the model's layers and is left out.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fuzz.planners.protocol import Answer, Ask, View, Viewed
from fuzz.planners.tree import Tree
from fuzz.planners.tree_plan import refusal
from fuzz.planners.tree_serve import planned

ALLOCATED_BYTES = 2**30
"""Largest pool that is allocated, untouched; a larger one is a tensor without memory, whose views have the same
numbers but no addresses.
"""

NO_GROUP = "no group"
"""A record of a layer that is in no group of its worker: vLLM's own search for the group finds nothing and raises."""


def viewed_answer(tree: Tree, ask: Ask) -> Answer:
    """Plans ``ask.case`` and makes the views of every worker."""
    outcome, run, seconds = planned(tree, ask.case)
    create = getattr(tree.interface, "create_kv_cache_views", None)
    views: tuple[Viewed, ...] = ()
    if run is not None and run.placement is not None and create is not None:
        layout = tree.interface.KVCacheLayout[ask.case.settings.layout]
        views = tuple(_worker_views(tree.modules["torch"], create, layout, config) for config in run.configs)
    return Answer(number=ask.number, outcome=outcome, seconds=seconds, views=views)


def _pool(torch: Any, size: int) -> Any:
    if size <= ALLOCATED_BYTES:
        # Beyond the worker's limit torch raises a RuntimeError, not a MemoryError.
        with contextlib.suppress(RuntimeError, MemoryError):
            return torch.empty(size, dtype=torch.int8)
    return torch.empty(size, dtype=torch.int8, device="meta")


def _worker_views(torch: Any, create: Any, layout: Any, config: Any) -> Viewed:
    size = max((tensor.size for tensor in config.kv_cache_tensors), default=0)
    pool = _pool(torch, size)
    device = str(pool.device)
    found: list[View] = []
    for tensor in config.kv_cache_tensors:
        first = tensor.layers[0]
        group = next((one for one in config.kv_cache_groups if first in one.layer_names), None)
        if group is None:
            return Viewed(device=device, views=tuple(found), error=NO_GROUP, message=f"no group has {first}")
        # A wrapper keeps a spec for each of its layers; the layers of one record share theirs.
        spec = getattr(group.kv_cache_spec, "kv_cache_specs", {}).get(first, group.kv_cache_spec)
        try:
            made = create(pool, spec, config.num_blocks, layout, tensor)
        except MemoryError:
            raise
        except Exception as error:
            told = refusal(error, "place")
            return Viewed(device=device, views=tuple(found), error=told.type, message=told.message[:500])
        found += (_read(pool, name, view) for name, view in zip(tensor.layers, made, strict=True))
    return Viewed(device=device, views=tuple(found))


def _read(pool: Any, layer: str, view: Any) -> View:
    item = view.element_size()
    # An address tells a view of other memory; there is none without memory, nor for a view of nothing.
    addressed = not pool.is_meta and view.numel()
    offset = view.data_ptr() - pool.data_ptr() if addressed else view.storage_offset() * item
    return View(
        layer=layer, offset=offset, shape=tuple(view.shape), strides=tuple(step * item for step in view.stride()),
        item_bytes=item,
    )  # fmt: skip
