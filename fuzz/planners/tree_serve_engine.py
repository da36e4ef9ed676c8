"""vLLM's own KVCacheManager on a plan, built the way the engine builds it, and requests for it.

What the scheduler decides is either asked of the tree's own scheduler class (how long a chunk may be) or stated here
as the contract of a call (``tree_serve_run``). Modules of vLLM come from the tree, loaded on the first use.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
from typing import Any, get_args

from fuzz.planners.tree import Tree
from fuzz.planners.tree_plan import Run
from oracles.case import (
    Case,
    ChunkedLocalSpec,
    CrossSpec,
    EncoderOnlySpec,
    MambaSpec,
    SlidingWindowMlaSpec,
    Spec,
)
from oracles.geometry import span_tokens
from oracles.laws.reading import planned_specs
from oracles.plan import Plan, Sizes

SHIFTED_METHODS = ("eagle", "eagle3", "mtp")
"""Drafters that read the hidden state of a position together with the token after it: what they cache at a position
depends on one token more than what the target caches there."""


STATE_BLOCK_UNIT = 8
"""Tokens of which a block of cached recurrent states is a multiple, by the documentation of ``mamba_block_size``."""


class NotServed(Exception):
    """The case is planned but no engine would serve it so, or this tree cannot be driven; the message says why."""


@functools.cache
def known_names(function: Any) -> frozenset[str] | None:
    """Names of the arguments of a function; None when it takes any."""
    known = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values()):
        return None
    return frozenset(known)


def filtered(function: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that ``function`` knows."""
    names = known_names(getattr(function, "__func__", function))
    return {name: value for name, value in values.items() if names is None or name in names}


class Engine:
    """One planned case, ready to make managers of any pool size."""

    def __init__(self, tree: Tree, case: Case, run: Run, plan: Plan) -> None:
        assert run.groups is not None and run.placement is not None and plan.sizes is not None
        self.tree, self.case, self.config, self.plan = tree, case, run.config, plan
        self.sizes: Sizes = plan.sizes
        self.scheduler_config = tree.function("generate_scheduler_kv_cache_config")(run.configs)
        self.specs: list[Any] = [group.kv_cache_spec for group in self.scheduler_config.kv_cache_groups]
        self.num_blocks: int = self.scheduler_config.num_blocks
        planned = planned_specs(plan)
        own = {layer.name: (layer, case.spec_of(layer)) for layer in case.layers}
        # Distinct (group, owned by a draft, the layer's own spec, its planned spec).
        self.layers: list[tuple[int, bool, Spec, Spec]] = list(dict.fromkeys(
            (planned[name][0], layer.draft, spec, planned[name][1])
            for name, (layer, spec) in own.items() if name in planned
        ))  # fmt: skip
        self.refuse_odd_cases()
        self.model_len: int = run.config.model_config.max_model_len
        settings = case.settings
        self.batched_tokens = settings.batched_tokens
        # The engine keeps no recurrent states without prefix caching, and none other than that way.
        uncached = any(isinstance(p, MambaSpec) and p.mamba_cache_mode == "none" for _, _, _, p in self.layers)
        self.caching: bool = run.config.cache_config.enable_prefix_caching and not uncached
        self.lookahead = int(self.of_config("num_lookahead_tokens"))
        self.drafts = settings.speculative.tokens if settings.speculative is not None else 0
        self.set_speculation()
        self.load_modules()

    def refuse_odd_cases(self) -> None:
        """Cases that no engine serves in this way. Raises NotServed."""
        specs = [planned for _, _, _, planned in self.layers]
        settings = self.case.settings
        if any(isinstance(spec, CrossSpec | EncoderOnlySpec) for spec in specs) and settings.prefix_caching:
            raise NotServed("encoder caches are served without prefix caching")
        cached = {spec.block_size for spec in specs if isinstance(spec, MambaSpec) and spec.mamba_cache_mode != "none"}
        if len(cached) > 1:
            # The worker moves the states of all such layers by one table, and asserts that it may.
            raise NotServed("vLLM states a limit: recurrent states of several block sizes")
        for spec in specs:
            if isinstance(spec, ChunkedLocalSpec) and not spec.replicated and settings.dcp > 1:
                # Said at a request's first lookup, or not at all where that comes after another check.
                raise NotServed("vLLM states a limit: no chunked local attention under DCP")
            if not isinstance(spec, MambaSpec):
                continue
            if spec.mamba_cache_mode != settings.mamba_mode:
                raise NotServed("a recurrent layer has another cache mode than the engine")
            if spec.mamba_cache_mode == "none" and spec.block_size < settings.model_len:
                raise NotServed("a recurrent state without cached states has a block of the model length")
            if spec.mamba_cache_mode != "none" and not settings.prefix_caching:
                raise NotServed("recurrent states are cached with prefix caching only")
            if spec.mamba_cache_mode != "none" and spec.block_size % STATE_BLOCK_UNIT:
                raise NotServed("vLLM documents blocks of cached recurrent states as multiples of 8 tokens")
            if spec.mamba_cache_mode not in get_args(
                getattr(self.tree.modules["config"].cache, "MambaCacheMode", None)
            ):
                raise NotServed("this tree's engine has no such recurrent cache mode")
            speculated = settings.speculative.tokens if settings.speculative is not None else 0
            if spec.num_speculative_blocks != speculated:
                raise NotServed("a recurrent layer has other speculative blocks than the engine speculates")

    def of_config(self, name: str) -> Any:
        """A derived number of the config; 0 where the tree has none of that name."""
        return getattr(self.config, name, 0) or 0 if hasattr(type(self.config), name) else 0

    def set_speculation(self) -> None:
        """What the scheduler reads from the speculative settings, under the names of 0.29 to 0.33."""
        speculative = self.config.speculative_config
        self.use_eagle = bool(speculative is not None and speculative.use_eagle())
        drops = getattr(speculative, "use_eagle_block_drop", None)
        self.drops_block = bool(drops()) if drops is not None else self.use_eagle
        self.hash_lookahead = int(self.of_config("num_hash_lookahead_tokens"))
        self.prefill_lookahead = 0
        if self.use_eagle:
            several = getattr(speculative, "use_multi_module_mtp", None)
            self.prefill_lookahead = self.drafts if several is not None and several() else 1

    def load_modules(self) -> None:
        """Imports what serving needs beyond planning. Raises NotServed."""
        try:
            self.manager_class = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
            self.request_module = importlib.import_module("vllm.v1.request")
            self.scheduler_class = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler
            self.sampling_class = importlib.import_module("vllm.sampling_params").SamplingParams
            hashing = importlib.import_module("vllm.utils.hashing")
        except (ImportError, AttributeError) as error:
            raise NotServed(f"this tree's cache manager cannot be loaded: {error}"[:200]) from error
        if (
            not hasattr(self.manager_class, "new_step_starts")
            or "scheduler_block_size" not in inspect.signature(self.manager_class.__init__).parameters
        ):
            raise NotServed("this tree's cache manager is older than 0.29")
        self.hash_function = hashing.sha256
        self.tree.utils.init_none_hash(self.hash_function)
        self.sampling = self.sampling_class(max_tokens=1)

    def manager(self, num_blocks: int) -> Any:
        """A KVCacheManager on a pool of ``num_blocks`` blocks, block 0 the null block."""
        config = copy.copy(self.scheduler_config)
        config.num_blocks = num_blocks
        values = {
            "kv_cache_config": config,
            "max_model_len": self.model_len,
            "scheduler_block_size": self.sizes.scheduler_block,
            "hash_block_size": self.sizes.hash_block,
            "max_in_flight_tokens": self.config.max_in_flight_tokens,
            "enable_caching": self.caching,
            "use_eagle": self.drops_block and not self.hash_lookahead,
            "num_hash_lookahead_tokens": self.hash_lookahead,
            "num_prefill_lookahead": self.prefill_lookahead,
            "dcp_world_size": self.case.settings.dcp,
            "pcp_world_size": 1,
        }
        return self.manager_class(**filtered(self.manager_class.__init__, values))

    def hasher(self) -> Any:
        """The function that hashes a request's tokens in units of the hash block; None without prefix caching."""
        if not self.caching:
            return None
        make = self.tree.utils.get_request_block_hasher
        values = {"num_hash_lookahead_tokens": self.hash_lookahead}
        return make(self.sizes.hash_block, self.hash_function, **filtered(make, values))

    def request(self, name: str, tokens: list[int], hasher: Any) -> Any:
        """A request of the tree with ``tokens`` as its prompt."""
        values = {
            "request_id": name, "prompt_token_ids": tokens, "sampling_params": self.sampling, "pooling_params": None,
            "eos_token_id": None, "arrival_time": 0.0, "block_hasher": hasher,
        }  # fmt: skip
        kind = self.request_module.Request
        return kind(**filtered(kind.__init__, values))

    def chunker(self, manager: Any) -> Any:
        """A scheduler of the tree that knows only what its rules for the length of a chunk read."""
        made = object.__new__(self.scheduler_class)
        mambas = [spec for spec in self.specs if hasattr(spec, "mamba_cache_mode")]
        coordinator = manager.coordinator
        partial = (
            bool(mambas) and self.case.settings.mamba_mode == "align"
            and self.sizes.hash_block < self.sizes.scheduler_block
            and bool(getattr(coordinator, "enable_partial_hash_hits", False))
        )  # fmt: skip
        facts = {
            "cache_config": self.config.cache_config,
            "scheduler_config": self.config.scheduler_config,
            "block_size": self.sizes.scheduler_block,
            "hash_block_size": self.sizes.hash_block,
            "kv_cache_manager": manager,
            "max_num_scheduled_tokens": self.batched_tokens,
            "use_eagle": self.use_eagle,
            "use_eagle_block_drop": self.drops_block and not self.hash_lookahead,
            "num_hash_lookahead_tokens": self.hash_lookahead,
            "num_prefill_lookahead": self.prefill_lookahead,
            "mamba_partial_cache_hit": partial,
            "mamba_fine_grained_prefix_cache": False,
            "mamba_shared_prefix_checkpoint": False,
            "mamba_prefill_checkpoint_alignment": next(
                (getattr(spec, "prefill_checkpoint_alignment", None) for spec in mambas), None
            ),
            "mamba_has_prefill_checkpoint_blocks": bool(mambas)
            and all(getattr(spec, "num_prefill_checkpoint_blocks", 0) > 0 for spec in mambas),
        }
        for name, value in facts.items():
            setattr(made, name, value)
        return made

    @property
    def aligns_chunks(self) -> bool:
        """Whether chunks end where recurrent states are kept."""
        return self.case.settings.mamba_mode == "align" and any(hasattr(s, "mamba_cache_mode") for s in self.specs)

    @property
    def replays(self) -> bool:
        """Whether a cache hit is followed by computing a window again, which this harness does not do."""
        return any(isinstance(p, SlidingWindowMlaSpec) and p.bounded_replay for _, _, _, p in self.layers)

    @property
    def looks_up(self) -> bool:
        """Whether requests are looked up in the prefix cache."""
        return self.caching and not self.replays

    def span(self, group: int) -> int:
        """Tokens that one block of a group covers, by the group's own spec."""
        assert self.plan.groups is not None
        return self.plan.groups[group].span_tokens

    def layer_span(self, own: Spec, planned: Spec) -> int:
        """Tokens that one block covers for a layer: the planned block, the layer's own replication."""
        if hasattr(own, "replicated"):
            return planned.block_size * (1 if own.replicated else self.case.settings.dcp)
        return span_tokens(planned, self.case.settings.dcp)
