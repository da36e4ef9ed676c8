"""Writes a diagnosis as a script, a pytest file, issue text, or the difference to the passing neighbour.

Layer names are the user's and may be hostile: in Python they appear as quoted literals only, never in a comment or
a docstring; in Markdown they are escaped.
"""

from __future__ import annotations

import difflib
import html
import itertools
import re
from collections.abc import Sequence
from typing import Any, Literal

import jinja2
from msgspec import Struct

from fuzz.export.diagnosis import Diagnosis
from fuzz.export.second import template_of
from fuzz.export.serving import ServedAgain
from fuzz.export.values import Reader, deepest, first_difference
from fuzz.planners.trace import Event
from fuzz.planners.tree_specs import CLASS_NAMES
from fuzz.replay.requests.checks import CHECKS
from fuzz.report.summary import law_reason, law_text
from oracles.case import (
    Case,
    CrossSpec,
    FullSpec,
    LayerSpec,
    MultipleOf,
    Settings,
    case_id,
    dump_case,
    kind_of,
    mode_of,
)
from oracles.geometry import page_bytes
from oracles.plan import Died, Outcome, Plan, Refused, TimedOut, Unsupported, plan_of
from oracles.specs import fields_of

Form = Literal["script", "pytest", "issue", "diff-case"]
FORMS: tuple[Form, ...] = ("script", "pytest", "issue", "diff-case")

POOL_CALLS = {"arrive", "begin", "lookup", "drain"}
"""What the check of a pool's size calls."""

MAX_SLUG = 40
"""Letters of a field in the name of a test."""

LONGEST_STEP = 24
"""Calls after which a run of steps is looked for to repeat: that many come from four requests at once."""


class Check(Struct, frozen=True, kw_only=True):
    """How a reproducer tells that the fault stands; ``kind`` is the template's branch. ``answers`` are two that the
    reproducer asks for and compares.
    """

    kind: Literal["refusal", "must_refuse", "layers", "parts", "values", "stands", "answers", "serving"]
    expected: Any = None
    faulty: Any = None
    reader: Reader | None = None
    any_refusal: bool = False


def choose_check(diagnosis: Diagnosis) -> Check:
    """The narrowest check that the finding allows: its law's own, else a value that differs from what was due."""
    law, path = diagnosis.finding.law, diagnosis.finding.first_difference
    expected, obtained = diagnosis.expected, diagnosis.obtained
    if diagnosis.second is not None:
        return Check(kind="answers", expected=diagnosis.second.due, reader=diagnosis.second.reader)
    if diagnosis.served is not None:
        return Check(kind="serving", expected=law_text(law))
    if law == "R1":
        return Check(kind="refusal", expected="a plan, or a ValueError or NotImplementedError that names its cause")
    if law == "G1" and path != "groups[].members":
        return Check(kind="layers")
    if law == "G6":
        return Check(kind="parts")
    if isinstance(obtained, Refused | Died | TimedOut) and not isinstance(expected, Refused):
        return Check(kind="refusal", expected="a plan", any_refusal=True)
    if isinstance(expected, Refused) and not isinstance(obtained, Refused):
        return Check(kind="must_refuse")
    return _by_value(plan_of(expected) if expected is not None else None, plan_of(obtained))


def _by_value(expected: Plan | None, obtained: Plan | None) -> Check:
    found = first_difference(expected, obtained) if expected is not None and obtained is not None else None
    if found is not None:
        reader, wanted, _ = found
        return Check(kind="values", expected=wanted, reader=reader)
    deep = deepest(obtained) if obtained is not None else None
    if deep is None or obtained is None:
        return Check(kind="refusal", expected="a plan", any_refusal=True)
    return Check(kind="stands", faulty=deep.read(obtained), reader=deep)


def has_script(diagnosis: Diagnosis) -> bool:
    """Whether a script can tell if the finding stands: by planning, perhaps twice, or by serving requests."""
    return diagnosis.served is not None or diagnosis.finding.law not in CHECKS


def export(diagnosis: Diagnosis, form: Form) -> str:
    """The finding in one of ``FORMS``; a diff against the neighbour is empty when there is none."""
    if form == "diff-case":
        return _diff(diagnosis)
    if form == "issue":
        return _issue(diagnosis)
    return _python(diagnosis, "script.py.j2" if form == "script" else "test_case.py.j2", lone=form == "script")


def _python(diagnosis: Diagnosis, template: str, *, lone: bool) -> str:
    case, check, served = diagnosis.case, choose_check(diagnosis), diagnosis.served
    names = [f"{kind_of(spec)}_{at}" for at, spec in enumerate(case.specs)]
    specs = [_spec(name, spec) for name, spec in zip(names, case.specs, strict=True)]
    text = _environment().get_template(template).render(
        title=served.message if served is not None else diagnosis.finding.summary,
        law_text=law_text(diagnosis.finding.law), slug=_slug(diagnosis), lone=lone,
        settings=case.settings, caching=_caching(case), layout_preset=_layout_preset(case.settings),
        specs=specs, fractions=any("Fraction(" in value for one in specs for _, value in one["fields"]),
        layers=[{"name": x.name, "spec": names[x.spec], "stage": x.stage, "draft": x.draft} for x in case.layers],
        memory=[w.memory for w in case.settings.workers], stages=[w.stage for w in case.settings.workers],
        input_is_judged=diagnosis.finding.first_difference == "refusal.input",
        check=check.kind, expected=check.expected, faulty=check.faulty, reader=check.reader,
        any_refusal=check.any_refusal,
        **(_serving(served, case) if served is not None else {}),
        replicated=[x.name for x in case.layers if mode_of(case.spec_of(x)) == "replicated"],
        second=diagnosis.second, part=template_of(diagnosis.second), since=_since(diagnosis),
    )  # fmt: skip
    return _spaced(text)


def _since(diagnosis: Diagnosis) -> str:
    """The first release of vLLM that has what a reproducer calls."""
    views = diagnosis.second is not None and diagnosis.second.how == "views"
    return "0.29" if views or diagnosis.served is not None else "0.26"


def _spaced(text: str) -> str:
    """Python source with the blank lines that formatters want, wherever a template left a part out."""
    text = re.sub(r"\n{3,}(?=    def )", "\n\n", text)
    text = re.sub(r"\n{2,}(?=(?:class|def|if __name__) )", "\n\n\n", text)
    return re.sub(r"\n{4,}", "\n\n\n", text).rstrip() + "\n"


def call_lines(events: Sequence[Event]) -> list[str]:
    """The calls as rows of a list; a run of steps alike is written once, with how often it comes."""
    rows = [(one.name, *one.args) for one in events]
    lines, at = [], 0
    while at < len(rows):
        period, times = max(((p, _times(rows, at, p)) for p in range(1, LONGEST_STEP + 1)), key=_saved)
        alike = [f"{source(row)}," for row in rows[at : at + period]]
        if _saved((period, times)) > 0:
            lines += ["*[", *(f"    {row}" for row in alike), "]", f"* {times},"]
            at += period * times
        else:
            lines.append(alike[0])
            at += 1
    return lines


def _times(rows: Sequence[tuple[Any, ...]], at: int, period: int) -> int:
    """How often the ``period`` rows from ``at`` on come in a row."""
    times = 1
    while rows[at + times * period : at + (times + 1) * period] == rows[at : at + period]:
        times += 1
    return times


def _saved(run: tuple[int, int]) -> int:
    """Lines that writing a run once saves."""
    period, times = run
    return period * (times - 1) - 2


def _serving(served: ServedAgain, case: Case) -> dict[str, Any]:
    """What the template of served requests needs."""
    runs = [(size, len(list(alike))) for size, alike in itertools.groupby(served.spot.args[3:])]
    chunks = " + ".join(f"[{size}] * {count}" if count > 2 else f"{[size] * count}" for size, count in runs)
    return {
        "spot": served.spot, "trace": served.trace, "error": served.error, "chunks": chunks,
        "keeps_contents": served.keeps_contents,
        "calls": call_lines(served.events),
        "used": {one.name for one in served.events} | (POOL_CALLS if served.spot.name == "pool" else set()),
        "encoder_tokens": case.settings.encoder_tokens if any(isinstance(s, CrossSpec) for s in case.specs) else 0,
        "drafts": case.settings.speculative.tokens if case.settings.speculative is not None else 0,
    }  # fmt: skip


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("fuzz"), trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    made.filters |= {"repr": source, "md": _markdown, "code": _code}
    return made


def _spec(name: str, spec: LayerSpec) -> dict[str, Any]:
    fields = []
    for field in fields_of(type(spec)):
        value = getattr(spec, field.name)
        if field.required or value != field.default or field.name == "dtype":  # vLLM has no default for it
            fields.append((field.name, _literal(field.name, value)))
    return {"name": name, "cls": CLASS_NAMES[kind_of(spec)], "fields": fields}


def _literal(field: str, value: Any) -> str:
    """A field's value as Python source for vLLM."""
    if field == "dtype":
        return f"torch.{value}"
    if field == "dtypes":
        return "(" + "".join(f"torch.{item}, " for item in value).rstrip() + ")"
    if field == "tokens_per_state" and isinstance(value, str):
        return "Fraction({}, {})".format(*value.split("/"))
    if isinstance(value, MultipleOf):
        return f'module("vllm.v1.attention.backend").MultipleOf({value.multiple_of})'
    if field == "kv_quant_mode":
        return f"interface.KVQuantMode[{source(value)}]"
    if field == "cache_role":
        return f"interface.SparseCacheRole[{source(value.upper())}]"
    if field == "mamba_type":
        return f'module("vllm.v1.attention.backends.registry").MambaAttentionBackendEnum[{source(value)}]'
    return source(value)


def source(value: Any) -> str:
    """``repr``, with double quotes where that changes nothing, as vLLM's formatter wants them."""
    if isinstance(value, str):
        quoted = repr(value)
        return quoted if '"' in quoted else f'"{quoted[1:-1]}"'
    if isinstance(value, list):
        return "[" + ", ".join(map(source, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(source, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{source(k)}: {source(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _caching(case: Case) -> bool:
    """The engine turns prefix caching off when a layer attends non-causally."""
    return case.settings.prefix_caching and not any(isinstance(s, FullSpec) and s.non_causal for s in case.specs)


def _layout_preset(settings: Settings) -> str:
    return source(settings.layout if settings.layout_origin == "forced" else None)


def _slug(diagnosis: Diagnosis) -> str:
    """What a test is named for: the field that differs, the law and the case."""
    finding = diagnosis.finding
    words = f"{finding.first_difference[:MAX_SLUG]} {finding.law} {case_id(diagnosis.case)}"
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def _issue(diagnosis: Diagnosis) -> str:
    case = diagnosis.case
    by_script = has_script(diagnosis)
    code = export(diagnosis, "script") if by_script else dump_case(case).decode()
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    return _environment().get_template("issue.md.j2").render(
        title=diagnosis.finding.summary,
        law_text=law_text(diagnosis.finding.law), law_reason=law_reason(diagnosis.finding.law),
        version=diagnosis.planner.version, address=diagnosis.planner.address, planner_module=diagnosis.planner_module,
        other_version=diagnosis.other.version, other_address=diagnosis.other.address,
        contract=diagnosis.contract, identity=case_id(case), fingerprint=diagnosis.finding.fingerprint,
        settings_words=settings_words(case.settings), table=_table(case),
        expected_words=_due(diagnosis), obtained_words=diagnosis.finding.summary,
        neighbour=diagnosis.neighbour.words if diagnosis.neighbour else "", by_script=by_script, code=code.rstrip(),
        fence="`" * max(3, longest + 1),
    )  # fmt: skip


def expected_words(diagnosis: Diagnosis) -> str:
    """What was due, in words, and who says so."""
    check = choose_check(diagnosis)
    if check.kind == "values" and check.reader is not None:
        return f"{check.reader.text} {check.expected!r} (says {diagnosis.expected_by})"
    if check.kind in ("refusal", "answers"):
        return str(check.expected)
    if check.kind == "must_refuse":
        return f"a refusal (says {diagnosis.expected_by})"
    return law_text(diagnosis.finding.law)


def _due(diagnosis: Diagnosis) -> str:
    """``expected_words`` in Markdown; a law's text is ours and may use it."""
    words = expected_words(diagnosis)
    return words if words == law_text(diagnosis.finding.law) else _markdown(words)


def outcome_words(outcome: Outcome) -> str:
    """How planning ended, in a sentence."""
    if isinstance(outcome, Refused):
        first = outcome.first
        message = first.message.strip().splitlines()[0][:200] if first.message.strip() else "(no message)"
        return f"refused at {first.stage}: {first.type}: {message}"
    if isinstance(outcome, Died):
        return f"died ({outcome.cause})"
    if isinstance(outcome, TimedOut):
        return f"gave no answer within {outcome.seconds:g} s"
    if isinstance(outcome, Unsupported):
        return f"cannot express {outcome.field}: {outcome.reason}"
    return "planned"


def settings_words(settings: Settings) -> str:
    """The settings that a reader needs: those that are not the default, and always the layout."""
    words = [f"layout {settings.layout} ({settings.layout_origin})"]
    for field in fields_of(Settings):
        value = getattr(settings, field.name)
        if field.name not in ("layout", "layout_origin", "workers", "speculative") and value != field.default:
            words.append(f"{field.name} {value}")
    if settings.speculative is not None:
        words.append(f"speculative {settings.speculative.method}, {settings.speculative.tokens} tokens")
    words.append("memory " + ", ".join(f"{w.memory:,}" for w in settings.workers) + " bytes")
    return "; ".join(words)


def _table(case: Case) -> list[dict[str, Any]]:
    rows = []
    for at, spec in enumerate(case.specs):
        names = [layer.name for layer in case.layers if layer.spec == at]
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        fields = ", ".join(
            f"{f.name}={getattr(spec, f.name)}" for f in fields_of(type(spec))
            if f.name not in ("block_size", "replicated") and (f.required or getattr(spec, f.name) != f.default)
        )  # fmt: skip
        rows.append({
            "layers": shown, "kind": kind_of(spec), "block": f"{spec.block_size:,}",
            "page": f"{page_bytes(spec):,}", "mode": mode_of(spec), "fields": fields,
        })  # fmt: skip
    return rows


def _markdown(text: str) -> str:
    """Text in a line of Markdown, whatever it holds."""
    one_line = " ".join(str(text).split())
    return re.sub(r"([\\`*_\[\]|~#@])", r"\\\1", html.escape(one_line, quote=False))


def _code(text: str) -> str:
    """Text between single backticks in a table."""
    return str(text).replace("`", "'").replace("|", "\\|")


def _diff(diagnosis: Diagnosis) -> str:
    if diagnosis.neighbour is None:
        return ""
    lines = difflib.unified_diff(
        dump_case(diagnosis.case).decode().splitlines(keepends=True),
        dump_case(diagnosis.neighbour.case).decode().splitlines(keepends=True),
        f"fails/{case_id(diagnosis.case)}.json", f"passes/{case_id(diagnosis.neighbour.case)}.json",
    )  # fmt: skip
    return "".join(lines)
