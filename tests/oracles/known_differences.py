"""Differences between the reference and released vLLM that are understood: vLLM is wrong in each.

Each is explained by the case in ``corpus/regress`` or ``corpus/reports`` that it names. One fault may show as several
differences.
"""

from __future__ import annotations

Key = tuple[str, str, str, str]
"""(law, path, error, frame) of a breach."""

GROUP, PLACE = "reference.group", "reference.place"
EMPTY_STAGE = "stage-without-caches.layer-outer"
REFUSED = "group.refusal"
KNOWN: dict[Key, str] = {
    (PLACE, "placement[].layers", "", ""): "empty-stage-foreign-records",
    (PLACE, "placement[].group_drafts", "", ""): "draft-mark-lost-on-stage",
    (PLACE, "place.refusal", "ValueError", ""): "groups-of-two-strides-overlay",
    (PLACE, "place.refusal", "AssertionError", "_get_kv_cache_bytes_per_block"): "stage-without-caches.block-outer",
    (PLACE, "place.refusal", "ZeroDivisionError", "get_kv_cache_config_from_groups"): EMPTY_STAGE,
    (PLACE, "place.refusal", "AssertionError", "get_kv_cache_config_from_groups"): EMPTY_STAGE,
    (PLACE, "place.refusal", "ZeroDivisionError", "get_kv_cache_configs"): "stage-without-caches.block-override",
    (PLACE, "place.refusal", "AssertionError", "compute_layout_strides"): "padded-heads-under-lhbnc",
    (PLACE, "place.refusal", "ValueError", "validate_kv_cache_layout"): EMPTY_STAGE,
    (PLACE, "place.refusal", "ValueError", "_check_enough_kv_cache_memory"): EMPTY_STAGE,
    (PLACE, "place.refusal", "ValueError", "_auto_fit_max_model_len"): EMPTY_STAGE,
    (GROUP, REFUSED, "AssertionError", "page_size_bytes"): "padded-page-is-not-scaled-with-its-block",
    (GROUP, REFUSED, "AssertionError", "unify_kv_cache_spec_page_size"): "padded-page-is-not-scaled-with-its-block",
    (GROUP, REFUSED, "AssertionError", "_check_exact_partition"): "packed-window-bucket-of-two-pages-loses-layers",
    (GROUP, REFUSED, "StopIteration", "is_uniform_type"): "packed-window-bucket-of-two-pages-loses-layers",
    (GROUP, REFUSED, "TypeError", "replace_as"): "window-mla-cannot-be-promoted",
    (GROUP, REFUSED, "AssertionError", "merge"): "sink-merge-drops-tokens-per-state",
    (GROUP, "groups[].wrapper", "", ""): "sink-merge-drops-tokens-per-state",
    (GROUP, REFUSED, "ValueError", "merge_window_sizes"): "two-windows-without-hybrid-manager",
    (GROUP, "group.refusal.type", "ValueError", "merge_window_sizes"): "two-windows-without-hybrid-manager.forced",
    (GROUP, REFUSED, "ValueError", "_get_kv_cache_groups_uniform_page_size"): "hidden-states-alone",
    (GROUP, "groups[].spec.sliding_window", "", ""): "mla-forgets-recorded-window",
    (GROUP, "groups[].spec.attention_chunk_size", "", ""): "mla-forgets-recorded-chunk",
    (GROUP, "groups[].spec.kv_quant_mode", "", ""): "windowed-mla-forgets-quantisation",
    (GROUP, "groups[].spec.head_size_v", "", ""): "windowed-mla-merges-other-heads",
    (GROUP, "groups[].page_bytes", "", ""): "windowed-mla-merges-other-heads",
    (GROUP, "groups[].kind", "", ""): "sink-merges-into-full",
    (GROUP, "groups[].layers", "", ""): "sink-merges-into-full",
    (GROUP, "groups[].block_size", "", ""): "hidden-state-scales-recurrent-block",
    (GROUP, REFUSED, "NotImplementedError", ""): "latent-tuples-leave-others-out",
    (GROUP, REFUSED, "AssertionError", "group_and_unify_kv_cache_specs"): "latent-tuples-leave-others-out",
    (GROUP, REFUSED, "AssertionError", "_get_kv_cache_groups_uniform_groups"): "latent-tuples-leave-others-out",
    # To 0.27 a wrapper asks for a table as wide as without DCP, its members for their own.
    ("reference.size", "sizes.widths", "", ""): "r06-wrapper-width-dcp-2",
    # Layers left out by packing, and windowed MLA or sinks merged across widths, change how many groups there are.
    (GROUP, "groups.count", "", ""): "packed-window-bucket-of-two-pages-loses-layers",
}
