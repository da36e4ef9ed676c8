"""Plans one case with one tree, stage by stage, in the order the engine does it.

Engine order (VLLM.md 5): resolve the layout, group, place, make the scheduler's config, set the configured block
size to the smallest prefix-cacheable one, claim the capacity, resolve the block sizes.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import PurePath
from typing import Any

from fuzz.planners.planting import take_reached
from fuzz.planners.protocol import Answer, Ask, words_of
from fuzz.planners.tree import Tree
from fuzz.planners.tree_config import changed_settings
from fuzz.planners.tree_read import Table, read_capacity, read_groups, read_placement, read_sizes
from fuzz.planners.tree_specs import Inexpressible, copies
from oracles.case import Case
from oracles.plan import Capacity, Group, Outcome, Placement, Plan, Planned, Refusal, Refused, Sizes, Stage, Unsupported


class GroupedOnly(BaseException):
    """Leaves vLLM's planning after grouping. Not an Exception, so that no planner catches it."""


class InvalidPlan(Exception):
    """The planner returned something that is no plan."""


def answer(tree: Tree, ask: Ask) -> Answer:
    """Plans ``ask.case`` once, or twice and compares."""
    tree.configs.model_text = ask.config
    if ask.depth == "branches":
        return traced_answer(tree, ask)
    if ask.depth == "serve":
        from fuzz.planners.tree_serve import served_answer  # only here: no other ask pays for it

        return served_answer(tree, ask)
    if ask.depth == "views":
        from fuzz.planners.tree_views import viewed_answer

        return viewed_answer(tree, ask)
    outcome, changed, seconds = plan(tree, ask.case, ask.depth)
    second = None
    if ask.twice:
        again, changed_again, more = plan(tree, ask.case, ask.depth)
        seconds += more
        changed = tuple(dict.fromkeys((*changed, *changed_again)))
        second = again if again != outcome else None
    return Answer(
        number=ask.number, outcome=outcome, changed=changed, second=second, seconds=seconds, reached=take_reached()
    )


def traced_answer(tree: Tree, ask: Ask) -> Answer:
    """Plans ``ask.case`` once, with the branches that planning takes."""
    from fuzz.planners import arcs  # only here: no other ask pays for it

    tracer = arcs.tracer(tree.planner, tree.utils)
    with tracer.watching():
        outcome, changed, seconds = plan(tree, ask.case, "all")
    return Answer(number=ask.number, outcome=outcome, changed=changed, seconds=seconds, branches=tracer.taken())


def plan(tree: Tree, case: Case, depth: str) -> tuple[Outcome, tuple[str, ...], float]:
    """The outcome of one case, the inputs that were altered, and the CPU seconds inside vLLM."""
    try:
        config = tree.configs.make(case)
        inputs = Inputs(tree, case)
    except Inexpressible as error:
        return Unsupported(field=error.field, reason=error.reason), (), 0.0
    except Exception as error:
        # The tree's own validation of a spec or a config: its word on the input.
        return Refused(refusals=(refusal(error, "input"),), plan=Plan()), (), 0.0
    run = Run(tree, case, config, inputs)
    started = time.thread_time()
    run.all_stages(depth)
    seconds = time.thread_time() - started
    return run.outcome(), run.changed, seconds


class Inputs:
    """The spec maps handed to vLLM, one per worker, with what is needed to see whether they were altered."""

    def __init__(self, tree: Tree, case: Case) -> None:
        built = [tree.specs.build(spec) for spec in case.specs]
        self.pristine = [dict(vars(obj)) for obj in built]
        used = [0] * len(built)
        for layer in case.layers:
            used[layer.spec] += 1
        stock = [iter(copies(obj, count)) for obj, count in zip(built, used, strict=True)]
        by_stage: dict[int, dict[str, Any]] = {}
        self.origin: dict[str, tuple[int, Any]] = {}
        for layer in case.layers:
            obj = next(stock[layer.spec])
            if layer.draft and hasattr(obj, "is_draft"):
                object.__setattr__(obj, "is_draft", True)
            by_stage.setdefault(layer.stage, {})[layer.name] = obj
            self.origin[layer.name] = (layer.spec, obj)
        self.maps = [dict(by_stage.get(worker.stage, {})) for worker in case.settings.workers]
        self.keys = [list(one) for one in self.maps]
        self.memory = [worker.memory for worker in case.settings.workers]

    def changed(self) -> tuple[str, ...]:
        """What planning altered: the maps themselves, or fields of the specs in them."""
        found: dict[str, None] = {}
        for one, keys in zip(self.maps, self.keys, strict=True):
            if list(one) != keys or any(one[name] is not self.origin[name][1] for name in keys):
                found["layers"] = None
        for spec, obj in self.origin.values():
            for name, value in self.pristine[spec].items():
                if name != "is_draft" and getattr(obj, name, None) != value:
                    found[f"specs.{name}"] = None
        return tuple(found)


class Run:
    """One pass through the stages."""

    def __init__(self, tree: Tree, case: Case, config: Any, inputs: Inputs) -> None:
        self.tree, self.case, self.config, self.inputs = tree, case, config, inputs
        self.table = Table(tree.specs)
        self.refusals: list[Refusal] = []
        self.errors: list[Exception] = []
        self.owner = config.kvfuzz_owner
        self.changed: tuple[str, ...] = ()
        self.groups: tuple[Group, ...] | None = None
        self.placement: tuple[Placement, ...] | None = None
        self.sizes: Sizes | None = None
        self.capacity: Capacity | None = None
        self.configs: list[Any] = []

    def outcome(self) -> Outcome:
        """Planned, or refused with what was planned all the same; Unsupported where the owner of the grouping lacks
        what it needs.
        """
        if self.owner is not None and (why := self.owner.absence(self.errors) or self._several_pools()):
            return Unsupported(field=self.owner.field, reason=why)
        made = Plan(
            specs=self.table.specs(), groups=self.groups, placement=self.placement,
            sizes=self.sizes, capacity=self.capacity, owner=self.owner.name if self.owner is not None else "",
        )  # fmt: skip
        return Refused(refusals=tuple(self.refusals), plan=made) if self.refusals else Planned(plan=made)

    def _several_pools(self) -> str:
        """Builders may place in several device allocations; our records are of one."""
        for placement in self.placement or ():
            if len({record.size for record in placement.records}) > 1:
                return f"{self.owner.name} places layers in several allocations; only one pool a worker can be told of"
        return ""

    def attempt(self, stage: Stage, step: Callable[[], Any]) -> Any:
        """The result of ``step``; an exception becomes a refusal of ``stage`` and None is returned."""
        try:
            return step()
        except (MemoryError, GroupedOnly):
            raise
        except Exception as error:
            self.errors.append(error)
            self.refusals.append(refusal(error, stage))
            return None

    def all_stages(self, depth: str) -> None:
        """Runs the stages until one that the next needs is refused."""
        if not self.resolve_layout():
            return
        placed = self.group_and_place(depth)
        self.changed = (*self.inputs.changed(), *changed_settings(self.config, self.case.settings))
        if placed and self.groups:
            self.size_and_claim()

    def resolve_layout(self) -> bool:
        """Lets vLLM's own guard judge a layout that is said to be resolved (0.29 and later)."""
        settings = self.case.settings
        resolve = getattr(self.tree.modules.get("backend_utils"), "resolve_kv_cache_layout", None)
        if resolve is None or settings.layout_origin == "forced":
            return True
        specs = [spec for one in self.inputs.maps for spec in one.values()]
        offered = [[settings.layout] for _ in self.inputs.maps]
        self.attempt("input", lambda: call(resolve, self.config, offered, kv_cache_specs=specs))
        return not self.refusals

    def group_and_place(self, depth: str) -> bool:
        """Groups, then places; whether both were done."""
        make_groups = self.tree.function("get_global_kv_cache_groups")
        if make_groups is not None:
            groups = self.attempt("group", lambda: make_groups(self.config, self.inputs.maps))
            if self.refusals:
                return False
            self.note_groups(groups)
            extra = {"global_kv_cache_groups": groups}
        else:
            extra = {}
            self.watch_grouping(depth)
        if self.refusals or (depth == "group" and extra):
            return False
        place = self.tree.function("get_kv_cache_configs")
        try:
            configs = self.attempt(
                "place", lambda: place(self.config, self.inputs.maps, list(self.inputs.memory), **extra)
            )
        except GroupedOnly:
            return False
        finally:
            self.stop_watching()
        if self.refusals:
            return False
        if self.groups is None:
            raise RuntimeError("this tree's planning did not pass through get_kv_cache_groups")
        self.configs = configs
        self.placement = self.attempt("place", lambda: valid(read_placement, configs))
        return not self.refusals

    def watch_grouping(self, depth: str) -> None:
        """Before 0.33 grouping happens inside ``get_kv_cache_configs``: stand at its door."""
        planner = self.tree.planner
        original = planner.get_kv_cache_groups
        state = {"inside": False}

        def watched(*args: Any, **kwargs: Any) -> Any:
            if state["inside"]:
                return original(*args, **kwargs)
            state["inside"] = True
            try:
                groups = original(*args, **kwargs)
            except Exception as error:
                if not isinstance(error, MemoryError):
                    self.refusals.append(refusal(error, "group"))
                    raise GroupedOnly from None
                raise
            finally:
                state["inside"] = False
            if self.groups is None:
                self.note_groups(groups)
                if depth == "group" or self.refusals:
                    raise GroupedOnly
            return groups

        self._watched = original
        planner.get_kv_cache_groups = watched  # type: ignore[attr-defined]

    def stop_watching(self) -> None:
        """Puts the grouping function back."""
        original = getattr(self, "_watched", None)
        if original is not None:
            self.tree.planner.get_kv_cache_groups = original  # type: ignore[attr-defined]

    def note_groups(self, groups: Any) -> None:
        """Reads the groups at once: later stages may alter them."""
        dcp = self.case.settings.dcp
        span_of = self.tree.function("resolve_dcp_kv_block_size")
        self.groups = self.attempt(
            "group", lambda: valid(read_groups, groups, self.table, self.tree.specs, dcp, span_of)
        )

    def size_and_claim(self) -> None:
        """Capacity and block sizes, each refused by itself."""
        tree, config = self.tree, self.config
        scheduler = self.attempt("size", lambda: tree.function("generate_scheduler_kv_cache_config")(self.configs))
        if scheduler is None:
            return
        sizes = [g.kv_cache_spec for g in scheduler.kv_cache_groups]
        cached = [s.block_size for s in sizes if getattr(s, "prefix_cacheable", True)]
        configured = min(cached or [s.block_size for s in sizes])
        object.__setattr__(config.cache_config, "block_size", configured)
        claim = tree.function("get_kv_cache_capacity")
        self.capacity = self.attempt(
            "capacity", lambda: valid(read_capacity, claim(config, scheduler), scheduler, config)
        )
        resolve = tree.function("resolve_kv_cache_block_sizes")
        pair = self.attempt("size", lambda: resolve(scheduler, config))
        if pair is not None:
            self.sizes = self.attempt("size", lambda: valid(read_sizes, pair, configured, self.configs, config))


def call(function: Callable[..., Any], *args: Any, **optional: Any) -> Any:
    """Calls ``function``, leaving out keyword arguments that its signature does not know."""
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function(*args, **{name: value for name, value in optional.items() if name in known})


def valid(read: Callable[..., Any], *args: Any) -> Any:
    """``read(*args)``; whatever goes wrong in reading means that the planner returned no plan."""
    try:
        return read(*args)
    except MemoryError:
        raise
    except Exception as error:
        # Reading is strict and side-effect free: a missing attribute or a wrong type is the planner's.
        raise InvalidPlan(f"{type(error).__name__[:200]}: {words_of(error, 300)}") from error


def refusal(error: BaseException, stage: Stage) -> Refusal:
    """An exception as a refusal: what, where, and through which functions of vLLM."""
    frames = []
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = PurePath(frame.f_code.co_filename)
        if "vllm" in path.parts and path.suffix == ".py":
            frames.append(f"{path.stem}:{frame.f_code.co_name}:{line}")
    # A planner chooses its words and the names of its types: neither may be longer than a message should be.
    name = type(error).__name__[:200]
    return Refusal(stage=stage, type=name, message=words_of(error, 2000), frames=tuple(frames[-12:]))
