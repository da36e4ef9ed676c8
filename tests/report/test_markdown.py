"""Markdown: what a step summary shows, and how much fits."""

from __future__ import annotations

import re

from msgspec import structs

from fuzz.report.details import Detail
from fuzz.report.markdown import MAX_BYTES, escaped, render
from fuzz.report.summary import Summary


def test_findings_stand_under_their_verdicts_with_a_line_to_run_again(summary: Summary) -> None:
    text = render(summary, " --contract isolate")
    assert text.startswith("## kvfuzz: 1 finding needs attention.\n")
    assert "| unfixed | 2 |" in text
    assert re.findall(r"^### (.*)$", text, re.M) == ["Unfixed (1)", "Fixed by the patch (1)", "Known (1)"]
    (opened,) = summary.open
    assert f"<code>kvfuzz replay {opened.id} --contract isolate</code>" in text
    assert text.count("<details>") == text.count("</details>") == 3
    assert "- `b12f48fe` 1 case: two strides &lt;b&gt;overlay&lt;/b&gt;" in text


def test_hostile_text_is_neither_markup_nor_link_nor_mention(hostile: tuple[Summary, dict[str, Detail]]) -> None:
    text = render(hostile[0])
    allowed = {"<code>", "</code>", "<details>", "</details>", "<summary>", "</summary>", "<!-- -->"}
    assert set(re.findall(r"<[^>]*>", text)) <= allowed
    line = next(line for line in text.splitlines() if "alert" in line)
    unescaped = re.sub(r"\\.", "", line)
    assert not re.search(r"[`\[\]|]|://|@\w", unescaped)
    assert unescaped.count("*") == 4, "those around the law"
    assert "\\x1b\\[31m" in line.replace("\\\\", "\\")
    assert "second line" in line


def test_escapes_are_written_out() -> None:
    assert escaped("a*b_[c](d) http://e www.f @g <h>") == (r"a\*b\_\[c\](d) http\://e www\.f @<!-- -->g &lt;h&gt;")


def test_a_run_with_too_much_to_say_counts_the_rest(summary: Summary) -> None:
    (one,) = summary.open
    many = tuple(structs.replace(one, fingerprint=f"{at:08x}", summary="é" * 300) for at in range(5000))
    text = render(structs.replace(summary, findings=many))
    assert 0.8 * MAX_BYTES < len(text.encode()) < MAX_BYTES
    shown = len(re.findall("^- ", text, re.M))
    left = re.search(r"^([\d,]+) more did not fit here\.$", text, re.M)
    assert left is not None
    assert shown + int(left[1].replace(",", "")) == 5000
    assert text.count("<details>") == text.count("</details>")
