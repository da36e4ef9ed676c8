"""Small models that the tests ask planners about."""

from __future__ import annotations

from oracles.case import Case, FullSpec, Layer, MambaSpec, MlaSpec, Settings, SlidingWindowSpec, Spec, build_case

MLA = MlaSpec(block_size=64, num_kv_heads=1, head_size=576)
FULL = FullSpec(block_size=16, num_kv_heads=8, head_size=128)
DRAFT_WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=2048, replicated=True)
STATE = MambaSpec(
    block_size=64, shapes=((8960,),), dtypes=("float32",), page_size_padded=73728, mamba_cache_mode="align"
)


def layers(prefix: str, spec: Spec, count: int, *, draft: bool = False, stage: int = 0) -> list[tuple[Layer, Spec]]:
    """``count`` equal layers named ``prefix.0`` and on."""
    return [(Layer(name=f"{prefix}.{at}", spec=0, draft=draft, stage=stage), spec) for at in range(count)]


def dense(prefix: str = "model.layers", count: int = 2) -> Case:
    """A model of one kind, which every version can be asked."""
    return build_case(layers(prefix, FULL, count), Settings())


def split_by_draft() -> Case:
    """DESIGN 2, first example: page unification splits the target."""
    return build_case(
        layers("target", MLA, 4) + layers("draft", DRAFT_WINDOW, 2, draft=True),
        Settings(dcp=4, layout_origin="forced"),
    )
