"""Harvests become cases without loss, or an error that names the field."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from fuzz.harvest.samples import HarvestError, case_from_harvest, variants
from oracles.case import (
    Case,
    FullSpec,
    MambaSpec,
    MlaSpec,
    MultipleOf,
    SlidingWindowSpec,
    Speculative,
    is_mixed,
    kind_of,
    mode_of,
)

SAMPLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "qwen3-next-80b_sm90_tp4_dcp2_mtp2.json").read_text()
)


def sample(**changes: Any) -> dict[str, Any]:
    """A copy of the sample; ``planner_config`` and ``spec`` change fields of the settings and of the full spec."""
    made: dict[str, Any] = copy.deepcopy(SAMPLE)
    made["planner_config"].update(changes.pop("planner_config", {}))
    made["specs"][1].update(changes.pop("spec", {}))
    return {**made, **changes}


def of(*specs: dict[str, Any], drafts: int = 0) -> Case:
    """A case of one layer for each spec, the last ``drafts`` of them a draft's, at dcp 1."""
    names = [f"layers.{at}" for at in range(len(specs))]
    return case_from_harvest(
        sample(
            specs=list(specs),
            stages=[[[name, at] for at, name in enumerate(names)]],
            draft_layers=names[len(names) - drafts :],
            planner_config={"decode_context_parallel_size": 1, "spec_method": "draft_model" if drafts else None},
        )
    )


FULL = {"class": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": "bfloat16"}
WINDOW = {**FULL, "class": "SlidingWindowSpec", "sliding_window": 128}
CHUNK = {**FULL, "class": "ChunkedLocalAttentionSpec", "attention_chunk_size": 128}
CROSS = {**FULL, "class": "CrossAttentionSpec"}


def test_layers_keep_their_order_specs_and_draft_marks() -> None:
    case = case_from_harvest(SAMPLE)
    assert [layer.name for layer in case.layers] == [name for name, _ in SAMPLE["stages"][0]]
    assert [layer.name for layer in case.layers if layer.draft] == ["mtp.layers.0.self_attn.attn"]
    assert [kind_of(case.spec_of(layer)) for layer in case.layers[:4]] == ["mamba", "mamba", "mamba", "full"]


def test_spec_fields_are_carried_over() -> None:
    state, full = case_from_harvest(SAMPLE).specs
    assert state == MambaSpec(
        block_size=288,
        shapes=((5, 2048), (8, 128, 128)),
        dtypes=("bfloat16", "bfloat16"),
        page_size_padded=294_912,
        mamba_type="GDN_ATTN",
        mamba_cache_mode="align",
        num_speculative_blocks=2,
    )
    assert full == FullSpec(block_size=288, num_kv_heads=1, head_size=256)


def test_settings_are_carried_over() -> None:
    settings = case_from_harvest(SAMPLE).settings
    assert (settings.tp, settings.dcp, settings.layout, settings.layout_origin) == (4, 2, "LBNHC", "resolved")
    assert (settings.model_len, settings.batched_tokens, settings.batches_in_flight) == (262_144, 2_048, 2)
    assert (settings.mamba_mode, settings.prefix_caching, settings.hybrid_manager) == ("align", True, True)
    assert settings.speculative == Speculative(method="mtp", tokens=2)
    assert settings.model_type == "qwen3_next"


def test_memory_is_an_input() -> None:
    assert [worker.memory for worker in case_from_harvest(SAMPLE, memory=2**30).settings.workers] == [2**30]


def test_an_alignment_in_kernel_blocks_is_carried_over() -> None:
    harvest = sample(spec={"block_stride_alignment": {"type": "MultipleOf", "base": 64}})
    assert case_from_harvest(harvest).specs[1].block_stride_alignment == MultipleOf(64)


def test_a_replicated_layer_is_told_by_its_flag() -> None:
    harvest = sample(spec={"dcp_sharded": False})
    assert mode_of(case_from_harvest(harvest).specs[1]) == "replicated"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec": {"class": "NovelSpec"}}, r"specs\[1\]\.class: NovelSpec is no cache spec known here"),
        ({"spec": {"novelty": 1}}, r"specs\[1\]\.novelty: a case has no such field for FullAttentionSpec"),
        ({"spec": {"page_size_bytes": 5}}, r"specs\[1\]\.page_size_bytes: vLLM says 5, the other fields give 294912"),
        ({"spec": {"dtype": "float4"}}, r"specs\[1\]: Invalid enum value 'float4'"),
        ({"planner_config": {"prefill_context_parallel_size": 2}}, "prefill_context_parallel_size"),
        ({"planner_config": {"max_in_flight_tokens": 3000}}, "max_in_flight_tokens: not a whole number of batches"),
        ({"stages": [[["a", 0], ["a", 1]]]}, r"layers\[1\]\.name: 'a' stands twice"),
        ({"stages": [[["a", 7]]]}, "missing from the harvest"),
    ],
)
def test_what_a_case_cannot_express_is_an_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(HarvestError, match=message):
        case_from_harvest(sample(**change))


def test_a_missing_field_is_named() -> None:
    harvest = sample()
    del harvest["planner_config"]["max_model_len"]
    with pytest.raises(HarvestError, match="'max_model_len': missing"):
        case_from_harvest(harvest)


def test_full_attention_appears_at_every_dcp_with_either_draft() -> None:
    forms = variants(of(FULL))
    assert list(forms) == [
        *("dcp1", "dcp1.dflash", "dcp2", "dcp2.eagle3", "dcp4", "dcp4.dflash", "dcp8", "dcp8.eagle3")
    ]
    assert [form.settings.dcp for form in forms.values()] == [1, 1, 2, 2, 4, 4, 8, 8]


def test_an_added_draft_is_replicated_and_on_the_last_stage() -> None:
    case = case_from_harvest(
        sample(specs=[FULL], stages=[[["a", 0]], [["b", 0]]], draft_layers=[], planner_config={"spec_method": None})
    )
    drafted = variants(case)["dcp4.dflash"]
    drafts = [layer for layer in drafted.layers if layer.draft]
    assert [layer.stage for layer in drafts] == 5 * [1]
    assert {mode_of(drafted.spec_of(layer)) for layer in drafts} == {"replicated"}
    assert drafted.settings.speculative == Speculative(method="dflash", tokens=7)


def test_an_added_draft_gives_recurrent_layers_a_block_for_each_token() -> None:
    state = {"class": "MambaSpec", "block_size": 16, "shapes": [[8]], "dtypes": ["float32"]}
    drafted = variants(of(state, FULL))["dcp1.dflash"]
    assert [spec.num_speculative_blocks for spec in drafted.specs if isinstance(spec, MambaSpec)] == [7]


def test_a_full_draft_layer_has_the_block_of_the_target() -> None:
    target = {**FULL, "class": "MLAAttentionSpec", "block_size": 64, "num_kv_heads": 1, "head_size_v": 0}
    drafted = variants(of(target))["dcp2.eagle3"]
    assert [spec.block_size for spec in drafted.specs if not isinstance(spec, MlaSpec)] == [64]


def test_a_draft_of_the_models_own_is_replicated_in_place() -> None:
    forms = variants(of(FULL, FULL, drafts=1))
    assert list(forms)[:2] == ["dcp1", "dcp1.replicated-draft"]
    plain, drafted = forms["dcp1"], forms["dcp1.replicated-draft"]
    assert [layer.name for layer in drafted.layers] == [layer.name for layer in plain.layers]
    assert not is_mixed(plain)
    assert is_mixed(drafted)


def test_a_model_whose_draft_is_replicated_also_appears_without_it() -> None:
    forms = variants(of(FULL, {**FULL, "dcp_sharded": False}, drafts=1))
    assert is_mixed(forms["dcp1"])
    assert [layer.name for layer in forms["dcp1.without-draft"].layers] == ["layers.0"]


@pytest.mark.parametrize("local", [WINDOW, CHUNK])
def test_local_layers_are_replicated_above_dcp_one(local: dict[str, Any]) -> None:
    forms = variants(of(FULL, local))
    assert list(forms) == [*("dcp1", "dcp1.dflash", "dcp4.replicated-local", "dcp4.replicated-local.dflash")]
    assert [mode_of(spec) for spec in forms["dcp4.replicated-local"].specs] == ["sharded", "replicated"]


def test_encoder_states_stay_at_dcp_one() -> None:
    assert list(variants(of(FULL, CROSS))) == ["dcp1", "dcp1.dflash"]


def test_mixed_modes_with_mixed_pages_get_a_block_outermost_layout() -> None:
    forms = variants(of({**FULL, "num_kv_heads": 3}))
    assert forms["dcp4"].settings.layout == "LBNHC"
    assert forms["dcp4.dflash"].settings.layout == "BLNHC"


def test_equal_pages_keep_the_layout() -> None:
    forms = variants(of({**FULL, "head_size": 128}))
    assert isinstance(forms["dcp4.dflash"].specs[-1], SlidingWindowSpec)
    assert forms["dcp4.dflash"].settings.layout == "LBNHC"
