"""The end of a run as Markdown that fits a GitHub step summary: verdicts, findings by verdict, known faults counted."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from fuzz.campaign.events import Witness
from fuzz.report.summary import (
    WORDS,
    Summary,
    conclusion,
    law_reason,
    law_text,
    reason_known,
    visible,
)

MAX_BYTES = 1_000_000
"""GitHub refuses a step summary above 1 MiB; the rest is for what the runner adds."""

_RESERVED = 2_000
"""Bytes kept for the closing lines of sections."""

_SECTIONS = (
    ("regression", "Regressions", "only the patched planner breaks a law"),
    ("dispute", "Disputes", "both break a law, not in the same way"),
    ("unfixed", "Unfixed", "both break a law in the same way"),
    ("fixed", "Fixed by the patch", "only the unpatched planner breaks a law"),
)


def render(summary: Summary, replay_arguments: str = "") -> str:
    """The report, below ``MAX_BYTES`` bytes of UTF-8; findings that do not fit are counted.

    ``replay_arguments`` are the options that ``kvfuzz replay`` needs to ask the same planners.
    """
    text = _Text(MAX_BYTES - _RESERVED)
    text.add(f"## kvfuzz: {escaped(conclusion(summary))}\n\n{_run(summary)}\n\n{_verdicts(summary)}\n")
    for verdict, title, meaning in _SECTIONS:
        findings = [w for w in summary.findings if w.verdict == verdict and not w.known]
        if findings:
            text.add(f"\n### {title} ({len(findings)})\n\n{meaning}\n\n")
            _list(text, (_finding(w, replay_arguments) for w in findings), len(findings))
    if listed := summary.listed:
        seen = sum(w.seen for w in listed)
        text.add(
            f"\n### Known ({len(listed)})\n\nFaults that `known.toml` lists, met {seen:,} times in all.\n\n"
            "<details><summary>Which</summary>\n\n"
        )
        _list(text, (_known(summary, w) for w in listed), len(listed))
        text.close("\n</details>\n")
    if summary.unmatched:
        text.add(
            f"\n### Gone ({len(summary.unmatched)})\n\nFaults that `known.toml` lists and that are gone; delete:\n\n"
        )
        _list(text, (f"- `{k.fingerprint}` {escaped(k.reason)}\n" for k in summary.unmatched), len(summary.unmatched))
    return text.whole()


class _Text:
    """Text up to a size."""

    def __init__(self, limit: int) -> None:
        self._parts: list[str] = []
        self._left = limit

    def add(self, part: str) -> bool:
        """Takes a part if it fits."""
        size = len(part.encode())
        if size > self._left:
            return False
        self._parts.append(part)
        self._left -= size
        return True

    def close(self, part: str) -> None:
        """Takes a closing line, for which room was kept."""
        self._parts.append(part)

    def whole(self) -> str:
        return "".join(self._parts)


def _list(text: _Text, items: Iterable[str], count: int) -> None:
    for place, item in enumerate(items):
        if not text.add(item):
            text.close(f"\n{count - place:,} more did not fit here.\n")
            return


def _run(summary: Summary) -> str:
    planners = " with ".join(
        f"{code(p.address)} (vLLM {escaped(p.version)}{f'; {p.rules}' if p.rules else ''})" for p in summary.planners
    )
    rate = f", {summary.cases / summary.seconds:,.0f} a second" if summary.seconds else ""
    return (
        f"{planners or 'No planner started'}; contract {summary.contract}; {summary.cases:,} cases in "
        f"{summary.seconds:,.1f} s{rate}; seed {summary.seed}."
    )


def _verdicts(summary: Summary) -> str:
    rows = [f"| {WORDS.get(name, name)} | {count:,} |" for name, count in summary.verdicts.items()]
    reasons = [f"| inconclusive: {escaped(reason)} | {count:,} |" for reason, count in summary.inconclusive.items()]
    return "\n".join(["| verdict | cases |", "|---|---:|", *rows, *reasons])


def _finding(witness: Witness, replay_arguments: str) -> str:
    command = f"kvfuzz replay {witness.id}{replay_arguments}"
    reason = law_reason(witness.law)
    return (
        f"- **{escaped(witness.law)}** {escaped(witness.sentence)}\n\n"
        f"  {code(command)}\n\n"
        f"  <details><summary>{witness.fingerprint}: {_count(witness.seen, 'case')}, smallest with "
        f"{_count(witness.layers, 'layer')}</summary>\n\n"
        f"  - law: {law_text(witness.law)}{' ' + reason if reason else ''}\n"
        f"  - broken by: the {escaped(witness.planner)} planner\n"
        f"  - first difference: {code(witness.first_difference)}\n"
        f"  - case file: {code(witness.case)}\n\n"
        "  </details>\n\n"
    )


def _known(summary: Summary, witness: Witness) -> str:
    return f"- `{witness.fingerprint}` {_count(witness.seen, 'case')}: {escaped(reason_known(summary, witness))}\n"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def escaped(text: str) -> str:
    """Text in a line of Markdown, whatever it holds: no markup, no link, no mention."""
    plain = html.escape(visible(text), quote=False)
    plain = re.sub(r"([\\`*_\[\]|~#!])", r"\\\1", plain)
    plain = plain.replace("@", "@<!-- -->").replace("://", r"\://")
    return re.sub(r"(?i)\bwww\.", lambda found: f"{found[0][:3]}\\.", plain)


def code(text: str) -> str:
    """Text as a code span, whatever it holds; also inside a table."""
    return f"<code>{re.sub('[|`*_~]', lambda c: f'&#{ord(c[0])};', html.escape(visible(text)))}</code>"
