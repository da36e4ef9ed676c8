"""Case files: identity, canonical form, and what hostile ones meet."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import structs

from fuzz.case_files import read_case
from fuzz.store import CASE_ID, FINGERPRINT, is_identity
from oracles.case import (
    MAX_FILE_BYTES,
    Case,
    CaseError,
    FullSpec,
    Layer,
    MambaSpec,
    MlaSpec,
    Settings,
    Worker,
    build_case,
    case_id,
    dump_case,
    is_mixed,
    json_schema,
    load_case,
    replicated_part,
    sharded_part,
)
from tests.models import dense, split_by_draft

FULL = '{"kind":"full","block_size":16,"num_kv_heads":1,"head_size":64%s}'


def file(specs: str = "", layers: str = "", extra: str = "", version: str = "1") -> bytes:
    """A case file as text, so that it can be wrong."""
    return f'{{"format":{version},"specs":[{specs}],"layers":[{layers}]{extra}}}'.encode()


def test_a_case_file_is_read_back_as_the_same_case() -> None:
    case = split_by_draft()
    assert load_case(dump_case(case)) == case


def test_a_case_has_a_fixed_id() -> None:
    # Written out: an id that changes between releases would orphan every stored finding.
    assert case_id(dense()) == "923540fee75b"


def test_stating_a_default_does_not_change_the_id() -> None:
    terse = load_case(file(FULL % "", '{"name":"a","spec":0}'))
    stated = load_case(
        file(
            FULL % ',"dtype":"bfloat16","head_size_v":64,"kv_quant_mode":"NONE","tokens_per_state":1',
            '{"name":"a","spec":0,"stage":0,"draft":false}',
            ',"settings":{"model_len":8192,"layout":"LBNHC","workers":[{"memory":1073741824}]},"provenance":{}',
        )
    )
    assert case_id(stated) == case_id(terse)


def test_provenance_is_not_part_of_the_identity() -> None:
    plain = load_case(file(FULL % "", '{"name":"a","spec":0}'))
    told = load_case(file(FULL % "", '{"name":"a","spec":0}', ',"provenance":{"title":"from a report"}'))
    assert case_id(told) == case_id(plain)


def test_unused_and_repeated_specs_do_not_change_the_id() -> None:
    plain = load_case(file(FULL % "", '{"name":"a","spec":0},{"name":"b","spec":0}'))
    other = FULL.replace("64", "80") % ""
    wordy = load_case(file(f"{other},{FULL % ''},{FULL % ''}", '{"name":"a","spec":1},{"name":"b","spec":2}'))
    assert wordy == plain


def test_the_id_does_not_depend_on_the_hash_seed() -> None:
    program = "from tests.models import *; from oracles.case import case_id; print(case_id(split_by_draft()))"
    ids = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert ids == {case_id(split_by_draft()) + "\n"}


def test_the_parts_of_a_mixed_case_are_its_layers_by_mode() -> None:
    case = split_by_draft()
    assert is_mixed(case)
    assert [layer.name for layer in sharded_part(case).layers] == [f"target.{n}" for n in range(4)]
    assert [layer.name for layer in replicated_part(case).layers] == ["draft.0", "draft.1"]
    assert not is_mixed(sharded_part(case))
    assert sharded_part(case).settings == case.settings


def test_recurrent_state_beside_replicated_attention_is_mixed() -> None:
    state = MambaSpec(block_size=8192, shapes=((64,),), dtypes=("float32",))
    draft = FullSpec(block_size=16, num_kv_heads=1, head_size=64, replicated=True)
    case = build_case([(Layer(name="m", spec=0), state), (Layer(name="d", spec=0), draft)], Settings(dcp=2))
    assert is_mixed(case)
    assert [layer.name for layer in sharded_part(case).layers] == ["m"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "file: not a JSON object"),
        (b"\xff\xfe", "file: not"),
        (b"[" * 200_000, "file: not a JSON object"),
        (b'{"format":1,"a":' + b"[" * 200_000, "file: not"),
        (b"{}", 'format: missing; add "format": 1'),
        (file(version="2"), "format: 2 is not known here; this kvfuzz reads format 1"),
        (file(version='"1"'), 'format: "1" is not known here'),
        (file(extra=',"surprise":1'), "unknown field `surprise`"),
        (file('{"kind":"sparse","block_size":1}'), r"specs\[0\].kind: invalid value 'sparse'"),
        (file(FULL % ',"heads":3'), r"specs\[0\]: object contains unknown field `heads`"),
        (file(FULL.replace("16", "-16") % ""), r"specs\[0\].block_size: expected `int` >= 1"),
        (file(FULL.replace("16", "1e400") % ""), r"specs\[0\].block_size: number out of range"),
        (file(FULL.replace("16", "NaN") % ""), "file: not"),
        (file(FULL.replace("16", "16.5") % ""), r"specs\[0\].block_size: expected `int`"),
        (file(FULL.replace("16", '"16"') % ""), r"specs\[0\].block_size: expected `int`, got `str`"),
        (file(FULL.replace("64", "9" * 30) % ""), r"specs\[0\].head_size: "),
        (file(FULL % ',"page_size_padded":1'), r"specs\[0\].page_size_padded: 1 is below the content of 4096"),
        (file(FULL % ',"tokens_per_state":32'), r"specs\[0\].tokens_per_state: 32 leaves no state"),
        (file(FULL % ',"tokens_per_state":"1/0"'), r"specs\[0\].tokens_per_state"),
        (file(FULL % ',"dtype":"complex64"'), r"specs\[0\].dtype: invalid enum value 'complex64'"),
        (file(FULL % ',"kv_quant_mode":"A\\u0007"'), r"specs\[0\].kv_quant_mode: has control characters"),
        (file(FULL % "", '{"name":"a","spec":1}'), r"layers\[0\].spec: 1 points past the table of 1 specs"),
        (file(FULL % "", '{"name":"a","spec":-1}'), r"layers\[0\].spec: expected `int` >= 0"),
        (file(FULL % "", '{"name":"a","spec":0},{"name":"a","spec":0}'), r"layers\[1\].name: 'a' stands twice"),
        (file(FULL % "", '{"name":"a\\u0000b","spec":0}'), r"layers\[0\].name: has control characters"),
        (file(FULL % "", '{"name":"a\\u001b[31m","spec":0}'), r"layers\[0\].name: has control characters"),
        (file(FULL % "", '{"name":"","spec":0}'), r"layers\[0\].name: expected `str` of length >= 1"),
        (file(FULL % "", '{"name":"a","spec":0,"stage":3}'), r"layers\[0\].stage: no worker serves stage 3"),
        (file(extra=',"settings":{"dcp":0}'), "settings.dcp: expected `int` >= 1"),
        (file(extra=',"settings":{"workers":[]}'), "settings.workers: expected `array` of length >= 1"),
        (file(extra=',"settings":{"workers":[{"memory":-1}]}'), r"settings.workers\[0\].memory: expected `int` >= 0"),
        (file(extra=',"settings":{"model_len":1e999}'), "file: not|settings.model_len"),
    ],
)  # fmt: skip
def test_a_hostile_file_gets_an_error_that_names_the_field(data: bytes, message: str) -> None:
    with pytest.raises(CaseError, match=message):
        load_case(data)


def test_a_million_layers_are_refused() -> None:
    layers = ",".join(f'{{"name":"{n}","spec":0}}' for n in range(1_000_000))
    with pytest.raises(CaseError, match="at most"):
        load_case(file(FULL % "", layers))


def test_more_layers_than_any_model_has_are_refused() -> None:
    layers = ",".join(f'{{"name":"{n}","spec":0}}' for n in range(10_001))
    with pytest.raises(CaseError, match="layers: expected `array` of length <= 10000"):
        load_case(file(FULL % "", layers))


def test_a_file_beyond_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(CaseError, match="a case file has at most"):
        load_case(b" " * (MAX_FILE_BYTES + 1))


def test_a_page_of_a_terabyte_is_refused() -> None:
    spec = '{"kind":"mamba","block_size":1,"shapes":[[1000000,1000000,1000000]],"dtypes":["float64"]}'
    with pytest.raises(CaseError, match="more than a terabyte"):
        load_case(file(spec, '{"name":"a","spec":0}'))


def test_a_model_class_is_part_of_the_question_and_of_a_file() -> None:
    plain = dense()
    named = structs.replace(plain, settings=structs.replace(plain.settings, architecture="LlamaForCausalLM"))
    assert b"architecture" not in dump_case(plain)
    assert load_case(dump_case(named)) == named
    assert case_id(named) != case_id(plain)
    hostile = structs.replace(plain, settings=structs.replace(plain.settings, architecture="Llama\x1b[2J"))
    with pytest.raises(CaseError, match=r"settings\.architecture: has control characters"):
        load_case(dump_case(hostile))


def test_the_schema_accepts_what_is_written_and_refuses_what_is_not() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good: dict[str, Any] = json.loads(dump_case(split_by_draft()))
    validator.validate(good)
    for broken in ({**good, "format": 2}, {**good, "surprise": 1}, {**good, "specs": [{"kind": "full"}]}):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(broken)


def test_every_kind_can_be_written_and_read() -> None:
    from oracles.case import SPEC_CLASSES

    needs: dict[str, dict[str, Any]] = {
        "rswa": {"rswa_window": 64}, "chunked_local": {"attention_chunk_size": 64},
        "sliding_window": {"sliding_window": 64}, "sliding_window_mla": {"sliding_window": 64},
        "mamba": {"shapes": [[4]], "dtypes": ["float32"]},
    }  # fmt: skip
    attention = {"num_kv_heads": 1, "head_size": 64}
    for kind in SPEC_CLASSES:
        facts = {"kind": kind, "block_size": 16, **({} if kind == "mamba" else attention), **needs.get(kind, {})}
        case = load_case(file(json.dumps(facts), '{"name":"a","spec":0}'))
        assert load_case(dump_case(case)) == case
        assert json.loads(msgspec.json.encode(case.specs[0]))["kind"] == kind


def test_a_latent_cache_has_no_value_half() -> None:
    assert MlaSpec(block_size=64, num_kv_heads=1, head_size=576).head_size_v == 0


def test_workers_may_share_a_stage() -> None:
    case = Case(specs=(), layers=(), settings=Settings(workers=(Worker(memory=1), Worker(memory=2))))
    assert case.settings.stages == 1


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (file(FULL.replace('"block_size":16', '"block_size":16,"block_size":32') % ""), "block_size"),
        (file(FULL % "", '{"name":"a","name":"b","spec":0}'), "name"),
        (file(FULL % "", extra=',"format":1'), "format"),
    ],
)
def test_a_file_with_a_key_twice_is_refused(tmp_path: Path, data: bytes, key: str) -> None:
    (tmp_path / "case.json").write_bytes(data)
    with pytest.raises(CaseError, match=rf"case.json: {key}: stands twice in one object"):
        read_case(tmp_path / "case.json")


def test_what_a_doubled_key_hides_need_not_be_readable(tmp_path: Path) -> None:
    deep = b"[" * 900 + b"]" * 900
    (tmp_path / "case.json").write_bytes(file(FULL % "").replace(b'"specs"', b'"specs":%s,"specs"' % deep))
    with pytest.raises(CaseError, match=r"case.json: (specs: stands twice|file: not )"):
        read_case(tmp_path / "case.json")


def test_a_line_break_after_a_pattern_is_refused() -> None:
    with pytest.raises(CaseError, match=r"specs\[0\].tokens_per_state"):
        load_case(file(FULL % ',"tokens_per_state":"1/2\\n"'))
    assert is_identity("0123456789ab")
    assert not is_identity("0123456789ab\n")
    for pattern, text in ((CASE_ID, "0123456789ab"), (FINGERPRINT, "0123abcd")):
        assert re.search(pattern, text)
        assert not re.search(pattern, text + "\n")
