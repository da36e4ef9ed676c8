"""Small cases whose plans the tests of request replay serve."""

from __future__ import annotations

from oracles.case import (
    Case,
    ChunkedLocalSpec,
    FullSpec,
    Layer,
    MambaSpec,
    MlaSpec,
    Settings,
    SinkSpec,
    SlidingWindowSpec,
    Spec,
    Speculative,
    Worker,
    build_case,
)

FULL = FullSpec(block_size=16, num_kv_heads=2, head_size=64)
WINDOW = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, sliding_window=64)
STATE = MambaSpec(block_size=16, shapes=((16, 64),), dtypes=("float32",), mamba_cache_mode="align",
                  page_size_padded=8192)  # fmt: skip
DRAFT = SlidingWindowSpec(block_size=16, num_kv_heads=2, head_size=64, sliding_window=48, replicated=True)
CHUNK = ChunkedLocalSpec(block_size=16, num_kv_heads=2, head_size=64, attention_chunk_size=24)


def case_of(specs: list[Spec], drafts: int = 0, **settings: object) -> Case:
    """One layer per spec, the last ``drafts`` of them a draft's."""
    first_draft = len(specs) - drafts
    layers = [(Layer(name=f"layers.{n}", spec=0, draft=n >= first_draft), spec) for n, spec in enumerate(specs)]
    usual: dict[str, object] = {"workers": (Worker(memory=2**26),), "layout": "BLNHC", "model_len": 1024,
                                "batched_tokens": 256}  # fmt: skip
    return build_case(layers, Settings(**{**usual, **settings}))  # type: ignore[arg-type]


CLEAN: dict[str, Case] = {
    "full": case_of([FULL]),
    "window": case_of([WINDOW]),
    "full and window": case_of([FULL, WINDOW]),
    "aligned states": case_of([FULL, STATE], mamba_mode="align"),
    "one step in flight": case_of([FULL, WINDOW], batches_in_flight=2),
    "drafts": case_of([FULL, FULL], drafts=1, speculative=Speculative(method="draft_model", tokens=3)),
    "mixed, dcp 2": case_of(
        [MlaSpec(block_size=16, num_kv_heads=1, head_size=128), DRAFT], drafts=1, dcp=2,
        speculative=Speculative(method="draft_model", tokens=2),
    ),
    "mixed, dcp 4": case_of(
        [MlaSpec(block_size=64, num_kv_heads=1, head_size=128), DRAFT], drafts=1, dcp=4,
        speculative=Speculative(method="draft_model", tokens=1),
    ),
    "chunked": case_of([ChunkedLocalSpec(block_size=16, num_kv_heads=2, head_size=64, attention_chunk_size=64)]),
    "no prefix caching": case_of([FULL, WINDOW], prefix_caching=False),
}  # fmt: skip
"""Plans that are served without a fault."""

SHIFTED_DRAFT = case_of([FULL, FULL], drafts=1, speculative=Speculative(method="eagle", tokens=3))
SINK = case_of([SinkSpec(block_size=16, num_kv_heads=2, head_size=64, sink_len=16)])
ODD_CHUNK = case_of([CHUNK])
SMALLER_BLOCK = case_of(
    [MambaSpec(block_size=64, shapes=((64, 64),), dtypes=("float32",), mamba_cache_mode="align",
               page_size_padded=65_536), FullSpec(block_size=16, num_kv_heads=2, head_size=128)],
    mamba_mode="align", model_len=4096, batched_tokens=512, workers=(Worker(memory=2**28),),
)  # fmt: skip
