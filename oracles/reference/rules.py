"""Which rules a planner of vLLM follows: one set per generation, with a named switch per difference.

The rules themselves are in VLLM.md 3 to 5. Between minor versions of one generation a few of them changed; each
change is a field of ``RuleSet``, so that the reference reads as one text and a version as a list of choices.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from msgspec import Struct, structs

Generation = Literal["packed", "tuples"]


class RuleSet(Struct, frozen=True, kw_only=True):
    """The rules of one minor version.

    Attributes:
        name: the version, for messages.
        generation: ``packed`` (0.29 to 0.33) or ``tuples`` (0.26 to 0.28), which knows no layouts; see ``tuples``.
        windows_are_state: rule 5 counts ring buffers and unsplit sliding windows among the state buckets (0.30 on).
        scales_for_hidden_states: rule 8 scales the groups until one hidden-state entry fits a page (0.30 on).
        compressed_mla_path: a path of its own for Mamba beside compressed MLA (0.30 and 0.31); not ruled here.
        promotes_modes_apart: rule 0 treats the replication modes apart (0.31 on).
        layout_guards_modes: the layout is refused when modes and pages are mixed and blocks are not outermost
            (0.31 on).
        guard_counts_rings: that guard counts a ring buffer as attention of its mode (0.31 only).
        aligns_strides: block strides keep their alignment: not at all (to 0.30), only the pool's bytes per block
            (0.31), or every stride (0.32 on).
        mode_all_keeps_states: Mamba mode ``all`` keeps a state per block of the sequence (to 0.31).
        recurrent_group_spans_dcp: the scheduler block of a single recurrent group is multiplied by dcp (to 0.30).
        checks_single_match_unit: a match unit that a single group would ignore is refused (0.32 on).
        draft_marks: how draft groups are found. ``layers``: from the layers' own mark, on every path (0.33).
            ``inferred``: by non-causal decode or by the last layer, except where rule 2, 3 or the way out of rule 6
            makes one group; no mark at all is read by the scheduler as a mark on every group.
        trailing_draft: whose last layer is taken for a draft's: that of every MTP model (0.31 and 0.32), or that
            of DeepSeek-V4 when packing (to 0.30).
        dropping_methods: speculative methods whose draft caches depend on the next token, so that the last block
            of a draft's group is dropped from prefix hits; only their groups are marked (DFlash and DSpark: to 0.32).
        pads_attention: rule 6 pads attention pages that do not divide the largest (0.29 on; before only where a
            backend says that it can, which a case cannot).
        decode_marks_agree: MLA merges only when ``non_causal_multi_token_decode`` agrees (0.29).
        states_share_pages: rule 3 puts recurrent layers together only if their pages are equal (0.29 on).
        counts_null_block: the null block is set aside when a model is admitted (0.29 on).
        divides_hidden_blocks: rule 8 takes a divisor of the groups' blocks, and not just any block that fills the
            page (0.28 on).
        retains_chained_tokens: windows retain what a chain of MTP modules reads further ahead (0.28 on).
        joins_collections: rule 7 joins collections of layers that merge (0.27 on); before, only equal ones.
        promotes_blocks: rule 0 gives every local layer the block size of the full ones (0.27 on); before, windowed
            MLA alone.
        keeps_windows_whole: rule 6 has its way out (0.27 on).
        hashes_by_mode: the hash unit backs off beside a recurrent layer that is not in mode ``align`` (0.28 on);
            before, beside one whose block is not the configured one.
        sizes_quantised_states: the tree works out the bytes of quantised states by itself, whatever a case says of them
            (to 0.27); such cases are not ruled.
        aligns_tuples: windows in tuples are padded to the next page of the latent layers, and share the slots of
            that page (0.26).
    """

    name: str
    generation: Generation = "packed"
    windows_are_state: bool = True
    scales_for_hidden_states: bool = True
    compressed_mla_path: bool = False
    promotes_modes_apart: bool = True
    layout_guards_modes: bool = True
    guard_counts_rings: bool = False
    aligns_strides: Literal["no", "pool", "every"] = "every"
    mode_all_keeps_states: bool = False
    recurrent_group_spans_dcp: bool = False
    checks_single_match_unit: bool = True
    draft_marks: Literal["layers", "inferred"] = "layers"
    trailing_draft: Literal["mtp", "deepseek_v4"] = "mtp"
    dropping_methods: frozenset[str] = frozenset({"eagle", "eagle3", "mtp"})
    pads_attention: bool = True
    decode_marks_agree: bool = False
    states_share_pages: bool = True
    counts_null_block: bool = True
    divides_hidden_blocks: bool = True
    retains_chained_tokens: bool = True
    joins_collections: bool = True
    promotes_blocks: bool = True
    keeps_windows_whole: bool = True
    hashes_by_mode: bool = True
    sizes_quantised_states: bool = False
    aligns_tuples: bool = False


V33 = RuleSet(name="0.33")
V32 = structs.replace(
    V33, name="0.32", draft_marks="inferred", dropping_methods=V33.dropping_methods | {"dflash", "dspark"}
)
V31 = structs.replace(
    V32, name="0.31", compressed_mla_path=True, guard_counts_rings=True, aligns_strides="pool",
    mode_all_keeps_states=True, checks_single_match_unit=False,
)  # fmt: skip
V30 = structs.replace(
    V31, name="0.30", promotes_modes_apart=False, layout_guards_modes=False, aligns_strides="no",
    recurrent_group_spans_dcp=True, trailing_draft="deepseek_v4",
)  # fmt: skip
V29 = structs.replace(
    V30, name="0.29", windows_are_state=False, scales_for_hidden_states=False, compressed_mla_path=False,
    decode_marks_agree=True,
)  # fmt: skip
V28 = structs.replace(
    V29, name="0.28", generation="tuples", pads_attention=False, decode_marks_agree=False, states_share_pages=False,
    counts_null_block=False,
)  # fmt: skip
V27 = structs.replace(
    V28, name="0.27", divides_hidden_blocks=False, retains_chained_tokens=False, hashes_by_mode=False,
    sizes_quantised_states=True,
)  # fmt: skip
V26 = structs.replace(
    V27, name="0.26", joins_collections=False, promotes_blocks=False, keeps_windows_whole=False, aligns_tuples=True,
)  # fmt: skip
RULE_SETS: dict[str, RuleSet] = {rules.name: rules for rules in (V26, V27, V28, V29, V30, V31, V32, V33)}
"""Every rule set by minor version."""


def rules_for(version: str, generation: str, capabilities: Collection[str] = ()) -> RuleSet | None:
    """The rule set of a planner, from its hello; None for one that is not known, which is never guessed.

    A fork's own changes show in its capabilities: draft marks on the specs are read from there.
    """
    found = re.match(r"v?(\d+\.\d+)(?!\d)", version)
    rules = RULE_SETS.get(found[1]) if found else None
    return adapted(rules, capabilities) if rules is not None and rules.generation == generation else None


def adapted(rules: RuleSet, capabilities: Collection[str]) -> RuleSet:
    """A release's rules as a tree follows them whose capabilities show a change of another release."""
    marks: Literal["layers", "inferred"] = "layers" if "draft_flag_on_spec" in capabilities else "inferred"
    if capabilities and marks != rules.draft_marks:
        return structs.replace(rules, draft_marks=marks)
    return rules
