"""A planner with ten faults, of which a case asks for one by its model type: ``fault: lost_layer``.

One process so serves all of them. Each alters what vLLM was given or made; none looks at names or sizes.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


def lost_layer(groups: Any) -> None:
    groups[-1].layer_names.pop()


def foreign_layer(groups: Any) -> None:
    groups[-1].layer_names.append("nobody.layers.0")


def reversed_layers(groups: Any) -> None:
    for group in groups:
        group.layer_names.reverse()


def wider_window(groups: Any) -> None:
    for group in groups:
        spec = group.kv_cache_spec
        if type(spec).__name__ == "SlidingWindowSpec":
            group.kv_cache_spec = dataclasses.replace(spec, sliding_window=spec.sliding_window + 1)


def bare_refusal(groups: Any) -> None:
    raise KeyError("fault")


def typed_refusal(groups: Any) -> None:
    raise NotImplementedError("fault")


def records_before_the_pool(configs: Any) -> None:
    for config in configs:
        for tensor in config.kv_cache_tensors:
            tensor.offset -= 1 + tensor.offset


def forgotten_record(configs: Any) -> None:
    for config in configs:
        config.kv_cache_tensors = config.kv_cache_tensors[:-1]


def doubled_scheduler_block(sizes: Any) -> Any:
    return 2 * sizes[0], sizes[1]


def doubled_claim(claim: Any) -> Any:
    return 2 * claim[0], 2 * claim[1]


AFTER_GROUPING: tuple[Callable[[Any], Any], ...] = (
    lost_layer,
    foreign_layer,
    reversed_layers,
    wider_window,
    bare_refusal,
    typed_refusal,
)
AFTER_PLACING = (records_before_the_pool, forgotten_record)
AFTER_SIZING = (doubled_scheduler_block,)
AFTER_CLAIMING = (doubled_claim,)


def apply(planner: Any) -> None:
    def plant(name: str, faults: tuple[Callable[[Any], Any], ...], config_at: int) -> None:
        original = getattr(planner, name)

        def faulty(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            asked = args[config_at].model_config.hf_config.model_type.removeprefix("fault: ")
            for fault in faults:
                if fault.__name__ == asked and result:
                    result = fault(result) or result
            return result

        setattr(planner, name, faulty)

    plant("get_kv_cache_groups", AFTER_GROUPING, 0)
    plant("get_kv_cache_configs", AFTER_PLACING, 0)
    plant("resolve_kv_cache_block_sizes", AFTER_SIZING, 1)
    plant("get_kv_cache_capacity", AFTER_CLAIMING, 0)
