"""The grouping rules of vLLM 0.26 to 0.33, top to bottom as in VLLM.md 3; rule 5 is in ``packing`` and ``tuples``."""

from __future__ import annotations

import math

from msgspec import structs

from oracles.case import Settings
from oracles.geometry import DTYPE_BYTES, ceil_div
from oracles.reference.packing import LayerMap, Made, packed, plain, wrapper
from oracles.reference.rules import RuleSet
from oracles.reference.specs import is_uniform, merged, page, promoted, scaled, slot_key, with_page
from oracles.reference.tuples import latent_tuples
from oracles.specs import (
    AttentionSpec,
    ChunkedLocalSpec,
    FullSpec,
    HiddenStateSpec,
    MambaSpec,
    MlaSpec,
    SlidingWindowMlaSpec,
    SlidingWindowSpec,
    Spec,
)

BLOCK_OUTERMOST = frozenset({"BLHNC", "BLNHC", "BHLNC"})


class RefusedError(Exception):
    """The rules refuse: by this type of error, for this cause."""

    def __init__(self, type_name: str, cause: str) -> None:
        super().__init__(cause)
        self.type_name = type_name


class UnruledError(Exception):
    """The case meets a path of the planner that the rules do not describe."""


def group_layers(layers: LayerMap, settings: Settings, rules: RuleSet) -> list[Made]:
    """The groups of one layer map. Raises RefusedError and UnruledError."""
    if not settings.hybrid_manager:
        layers = without_hybrid_manager(layers, rules)  # rule 0
    if not layers:
        return []  # rule 1
    distinct = list(dict.fromkeys(layers.values()))
    one = merged(distinct, rules)
    if one is not None:
        return [plain(layers, one)]  # rule 2
    if is_uniform(distinct, rules):
        return [wrapper(layers)]  # rule 3
    if rules.compressed_mla_path and _is_compressed_mla_model(distinct):
        raise UnruledError("Mamba beside compressed MLA has a path of its own in 0.30 and 0.31")
    hidden: LayerMap = {n: spec for n, spec in layers.items() if isinstance(spec, HiddenStateSpec)}  # rule 4
    others = {name: spec for name, spec in layers.items() if name not in hidden}
    mixed_pages = len({page(spec) for spec in distinct if not isinstance(spec, HiddenStateSpec)}) > 1
    if not others or (rules.generation == "packed" and settings.layout in BLOCK_OUTERMOST and mixed_pages):
        return packed(others, rules) + [plain([name], spec) for name, spec in hidden.items()]  # rule 5
    if rules.generation == "tuples":
        tuples = latent_tuples(layers, rules)
        if tuples is not None:
            return tuples  # rule 5, before layouts
    try:
        others = on_one_page(others, rules)  # rule 6
    except RefusedError:
        whole = with_windows_kept_whole(layers, rules) if rules.keeps_windows_whole else None
        if whole is None:
            raise
        return [wrapper(whole)]
    groups = equal_counts(others, rules)  # rule 7
    return with_hidden(groups, hidden, rules) if hidden else groups  # rule 8


def _is_compressed_mla_model(specs: list[Spec]) -> bool:
    attention = [spec for spec in specs if not isinstance(spec, MambaSpec)]
    return (
        len(attention) < len(specs)
        and all(type(spec) is MlaSpec for spec in attention)
        and any(not isinstance(spec.tokens_per_state, str) and spec.tokens_per_state > 1 for spec in attention)
    )


# Rule 0: without the hybrid manager there is one kind of block table per mode.


def without_hybrid_manager(layers: LayerMap, rules: RuleSet) -> LayerMap:
    """Local layers beside full ones become full ones, each mode by itself; then all must be uniform."""
    replicated = {
        name for name, spec in layers.items()
        if rules.promotes_modes_apart and isinstance(spec, AttentionSpec) and spec.replicated
    }  # fmt: skip
    made = dict(layers)
    for part in (set(layers) - replicated, replicated):
        made |= promote_all({name: spec for name, spec in layers.items() if name in part}, rules)
    return made


def promote_all(layers: LayerMap, rules: RuleSet) -> LayerMap:
    """One part of rule 0. Raises RefusedError when the result is not uniform."""
    if is_uniform(layers.values(), rules):
        return layers
    full_blocks = {spec.block_size for spec in layers.values() if isinstance(spec, FullSpec)}
    made = layers
    if full_blocks:
        common = next(iter(full_blocks)) if len(full_blocks) == 1 else None
        table = {
            spec: promoted(spec, common if common and _takes_block(spec, rules) else spec.block_size)
            for spec in set(layers.values())
        }  # fmt: skip
        made = {name: table[spec] for name, spec in layers.items()}
    if not is_uniform(made.values(), rules):
        raise RefusedError("ValueError", "the layers cannot be brought to one kind without the hybrid manager")
    return made


def _takes_block(spec: Spec, rules: RuleSet) -> bool:
    return rules.promotes_blocks or isinstance(spec, SlidingWindowMlaSpec)


# Rule 6: all pages raised to the largest.


def on_one_page(layers: LayerMap, rules: RuleSet) -> LayerMap:
    """Each layer with the largest page. Raises RefusedError for MLA that does not divide it."""
    largest = max(page(spec) for spec in layers.values())
    table = {spec: _raised(spec, largest, rules) for spec in dict.fromkeys(layers.values())}
    return {name: table[spec] for name, spec in layers.items()}


def _raised(spec: Spec, largest: int, rules: RuleSet) -> Spec:
    size = page(spec)
    if size == largest:
        return spec
    if isinstance(spec, MambaSpec):
        return with_page(spec, largest)
    if size == 0:
        raise RefusedError("ValueError", "a block that holds no state has no page")
    if largest % size == 0:
        return scaled(spec, largest // size)
    if isinstance(spec, MlaSpec) or not rules.pads_attention:
        raise RefusedError("NotImplementedError", "page size is not divisible by the maximum page size")
    return with_page(spec, largest)


def with_windows_kept_whole(layers: LayerMap, rules: RuleSet) -> LayerMap | None:
    """The way out of rule 6: MLA beside plain windows, the windows' layers kept for the whole sequence."""
    kinds = {type(spec) for spec in layers.values()}
    if kinds & {HiddenStateSpec, SlidingWindowMlaSpec, ChunkedLocalSpec}:
        return None
    if SlidingWindowSpec not in kinds or not any(issubclass(kind, MlaSpec) for kind in kinds):
        return None
    try:
        made = promote_all(layers, rules)
    except RefusedError:
        return None
    return made if len({slot_key(spec) for spec in made.values()}) == 1 else None


# Rule 7: groups of equal numbers of layers.


def equal_counts(layers: LayerMap, rules: RuleSet) -> list[Made]:
    """Plain groups, dealt round-robin so that every pipeline stage has a share of each."""
    equal: dict[Spec, list[str]] = {}
    for name, spec in layers.items():
        equal.setdefault(spec, []).append(name)
    joined: list[list[Spec]] = []
    for spec in equal:
        for together in joined:
            if rules.joins_collections and merged([*together, spec], rules) is not None:
                together.append(spec)
                break
        else:
            joined.append([spec])
    collections = [[name for spec in together for name in equal[spec]] for together in joined]
    smallest = min(len(names) for names in collections)
    largest = max(len(names) for names in collections)
    # 1.5: a draft adds a layer or two to one kind, and must not split the other into nearly empty groups.
    width = largest if 2 * largest < 3 * smallest else smallest
    groups = []
    for names in collections:
        count = ceil_div(len(names), width)
        for first in range(count):
            share = names[first::count]
            one = merged(list(dict.fromkeys(layers[name] for name in share)), rules)
            assert one is not None, "what merges together merges in part"
            groups.append(plain(share, one))
    return groups


# Rule 8: hidden-state layers, a group each.


def with_hidden(groups: list[Made], hidden: LayerMap, rules: RuleSet) -> list[Made]:
    """``groups`` on a page that holds a hidden-state entry, then one group per hidden-state layer."""
    common = page(_spec(groups[0]))
    ratio = ceil_div(max(_entry_bytes(spec) for spec in hidden.values()), common)
    if ratio > 1 and rules.scales_for_hidden_states:
        groups = [plain(group.layers, _for_hidden(_spec(group), ratio)) for group in groups]
        common *= ratio
    block = math.gcd(*(_spec(group).block_size for group in groups))
    made = []
    for name, spec in hidden.items():
        fitting = max(common // _entry_bytes(spec), 1)
        size = _largest_divisor(block, fitting) if rules.divides_hidden_blocks else fitting
        bare = structs.replace(spec, block_size=size, page_size_padded=None, alignment=None)
        if page(bare) > common:
            raise RefusedError("ValueError", "a hidden-state entry does not fit the common page")
        made.append(plain([name], structs.replace(bare, page_size_padded=common)))
    return groups + made


def _largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` not above ``limit``."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return max(d for one in small for d in (one, number // one) if d <= limit)


def _entry_bytes(spec: Spec) -> int:
    """Bytes of one token's hidden state."""
    assert isinstance(spec, HiddenStateSpec)
    return spec.num_kv_heads * spec.head_size * DTYPE_BYTES[spec.dtype]


def _for_hidden(spec: Spec, ratio: int) -> Spec:
    """A recurrent state has no tokens to scale: its page is padded."""
    return with_page(spec, page(spec) * ratio) if isinstance(spec, MambaSpec) else scaled(spec, ratio)


def _spec(group: Made) -> Spec:
    assert group.spec is not None, "rule 7 makes plain groups"
    return group.spec
