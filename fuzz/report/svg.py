"""A drawing of a pool as SVG, to stand inside an HTML page.

Shapes carry classes (a replication mode, ``padding``, ``unused``, ``overlap``, ``outside``) and the page's style
sheet gives them colours for light and dark. One path holds all like cells of a row, so that a row costs a few
hundred bytes whatever the number of blocks. Units are CSS pixels at natural size.
"""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape

from fuzz.report.drawing import Pool, Row, Stack
from fuzz.report.summary import visible

WIDTH = 372.0
CELLS = 216.0
"""Width of the columns together; the labels stand to the right of them."""

WIDEST_CELL = 36.0
CELL_GAP = 1.5
STACK = 84.0
"""Height of the widest group's block; all stacks of a pool are to one scale, but for rows too thin to see."""

THINNEST_ROW = 4.0
LABEL = 25.0
"""A run is at least this high, so that its two lines of text do not run into the next one's."""

LINE = 11.0
TITLE = 18.0
UNUSED_LABEL = 13.0
NAME = 22
HEADING = 40
"""Characters of a label, and of the kinds in the title of a stack."""

DEFS = Markup(
    '<svg class="defs" width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse">'
    '<path class="hatch" d="M-1 1L1 -1M0 4L4 0M3 5L5 3"/></pattern>'
    '<pattern id="faint" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<path class="faint" d="M-1 1L1 -1M0 6L6 0M5 7L7 5"/></pattern></defs></svg>'
)
"""The hatchings; once in a page, before its drawings."""


def pool_svg(pool: Pool) -> Markup:
    """One pool."""
    scale = STACK / max((_stack_bytes(stack) for stack in pool.stacks), default=1)
    columns = _columns(pool)
    parts = [_column_numbers(pool, columns)]
    y = LINE + 4
    for stack in pool.stacks:
        drawn, height = _stack(stack, columns, scale, y)
        parts.append(drawn)
        y += height + 8
    words = escape(_words(pool))
    return Markup('<svg class="pool" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>{}</svg>').format(
        _n(WIDTH), _n(y), words, words, Markup("").join(parts)
    )


def _stack_bytes(stack: Stack) -> int:
    return max(1, sum(row.page for run in stack.runs for row in run) + stack.unused)


def _columns(pool: Pool) -> dict[int, tuple[float, float]]:
    """Left edge and width of each block's column; a column is left free where blocks are left out."""
    cut = len(pool.blocks) < pool.num_blocks
    count = len(pool.blocks) + cut
    pitch = min(WIDEST_CELL, CELLS / max(1, count))
    found = {}
    at = 0
    for place, block in enumerate(pool.blocks):
        if cut and place and block != pool.blocks[place - 1] + 1:
            at += 1
        found[block] = (at * pitch, pitch - CELL_GAP)
        at += 1
    return found


def _column_numbers(pool: Pool, columns: dict[int, tuple[float, float]]) -> Markup:
    texts = []
    for place, block in enumerate(pool.blocks):
        x, width = columns[block]
        if place and block == pool.blocks[-1] and block >= 10:
            texts.append(_text(x + width, LINE - 2, f"{block:,}", "number end"))
        elif block == place:
            texts.append(_text(x + width / 2, LINE - 2, str(block), "number middle"))
    texts.append(_text(CELLS + 10, LINE - 2, "block", "number"))
    return Markup("").join(texts)


def _stack(stack: Stack, columns: dict[int, tuple[float, float]], scale: float, top: float) -> tuple[Markup, float]:
    layers = f"{stack.layers:,} layer" + ("s" if stack.layers != 1 else "")
    parts = [_text(0, top + 11, f"group {stack.group} · {layers} · {_head(stack.kind)}", "title")]
    y = top + TITLE
    for place, run in enumerate(stack.runs):
        if stack.left_out and place == len(stack.runs) - 1:
            parts.append(_text(2, y + 10, f"⋯ {stack.left_out:,} layers not drawn", "label"))
            y += LINE + 5
        height = max(THINNEST_ROW * len(run), LABEL, sum(row.page for row in run) * scale)
        each = height / len(run)
        for number, row in enumerate(run):
            parts.append(_row(row, columns, y + number * each, each))
        parts.extend(_labels(run, y))
        y += height
    if stack.unused:
        height = max(UNUSED_LABEL, stack.unused * scale)
        cells = _cells(columns.values(), y, height)
        parts.append(Markup('<path class="unused" d="{}"><title>no page of this group lies here</title></path>').format(
            cells
        ))  # fmt: skip
        parts.append(_text(CELLS + 10, y + 9.5, f"unused, {stack.unused:,} B", "label"))
        y += height
    return Markup("").join(parts), y - top


def _row(row: Row, columns: dict[int, tuple[float, float]], y: float, height: float) -> Markup:
    """The pages of one layer: content, padding hatched, then what is wrong on top."""
    height -= 1  # a seam between layers
    padding = height * (row.page - row.content) / row.page if row.page else 0.0
    if row.content < row.page:
        padding = min(height - 1, max(2.0, padding))
    parts = [Markup('<path class="{}" d="{}"/>').format(row.mode, _cells(columns.values(), y, height - padding))]
    if padding:
        cells = _cells(columns.values(), y + height - padding, padding)
        parts.append(Markup('<path class="{} thin" d="{}"/><path class="padding" d="{}"/>').format(
            row.mode, cells, cells
        ))  # fmt: skip
    for kind, blocks in (("overlap", list(row.meets)), ("outside", sorted(row.outside))):
        if blocks:
            cells = _cells((columns[block] for block in blocks), y, height)
            parts.append(Markup('<path class="{}" d="{}"/>').format(kind, cells))
    return Markup("<g><title>{}</title>{}</g>").format(_row_words(row), Markup("").join(parts))


def _row_words(row: Row) -> str:
    words = [
        f"{visible(row.layer)}: {row.mode}, block b at byte {row.start:,} + b × {row.stride:,}; "
        f"page {row.page:,} B, {row.page - row.content:,} B of it padding"
    ]
    if row.meets:
        others = ", ".join(dict.fromkeys(visible(name) for name in row.meets.values()))
        words.append(f"shares bytes with {others}")
    if row.outside:
        words.append(f"{len(row.outside)} of the blocks drawn reach past the pool")
    return "; ".join(words)


def _labels(run: tuple[Row, ...], y: float) -> list[Markup]:
    first = run[0]
    count = f"{len(run)} × " if len(run) > 1 else ""
    padding = first.page - first.content
    share = f", {padding / first.page:.0%} padding" if padding else ""
    bad = any(row.meets or row.outside for row in run)
    return [
        _text(CELLS + 10, y + 10, names_of([row.layer for row in run]), "label bad" if bad else "label"),
        _text(CELLS + 10, y + 21, f"{count}{first.page:,} B{share}", "number"),
    ]


def names_of(names: list[str]) -> str:
    """The first and the last of some names, cut at the front to fit a label."""
    if len(names) == 1:
        return _tail(names[0], NAME)
    both = f"{visible(names[0])} … {visible(names[-1])}"
    return both if len(both) <= NAME else f"{_tail(names[0], (NAME - 3) // 2)} … {_tail(names[-1], (NAME - 3) // 2)}"


def _tail(name: str, length: int) -> str:
    shown = visible(name)
    return shown if len(shown) <= length else f"…{shown[1 - length :]}"


def _head(text: str) -> str:
    return text if len(text) <= HEADING else f"{text[: HEADING - 1]}…"


def _cells(columns: Iterable[tuple[float, float]], y: float, height: float) -> str:
    return "".join(f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h-{_n(width)}z" for x, width in columns)


def _text(x: float, y: float, text: str, classes: str) -> Markup:
    return Markup('<text class="{}" x="{}" y="{}">{}</text>').format(classes, _n(x), _n(y), text)


def _n(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")


def _words(pool: Pool) -> str:
    """The picture in a sentence, for who does not see it."""
    stacks = "; ".join(
        f"group {stack.group}: {stack.layers} layers, {'+'.join(sorted({r.mode for run in stack.runs for r in run}))}"
        for stack in pool.stacks
    )
    overlaps = pool.overlaps
    bad = (
        "overlapping: " + ", ".join(f"{visible(a)} and {visible(b)}" for a, b in overlaps[:3])
        if overlaps else "no overlap among the pages drawn"
    )  # fmt: skip
    return f"Pool of {pool.num_blocks:,} blocks, {pool.size:,} bytes. {stacks}. {bad}."
