"""The HTML page: in a browser, without a network, by keyboard, and whatever names it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fuzz.report.details import Detail
from fuzz.report.html import anchor, render
from fuzz.report.summary import Summary
from tests.report.browser import CHROMIUM, Page, browsing
from tests.report.conftest import HOSTILE_NAMES, M5_KNOWN

PNG = b"\x89PNG\r\n\x1a\n"

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; `make browser` installs it")


class Tags(HTMLParser):
    """Every tag with its attributes, and the text between."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory, summary: Summary, details: dict[str, Detail]) -> Path:
    """The campaign's page."""
    path = tmp_path_factory.mktemp("html") / "report.html"
    path.write_text(render(summary, details))
    return path


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of a headless browser."""
    with browsing(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def test_every_finding_has_both_planners_groups_and_a_drawing(summary: Summary, details: dict[str, Detail]) -> None:
    text = render(summary, details, " --contract isolate")
    for witness in summary.findings:
        section = text.split(f'id="{anchor(witness)}"')[1].split("</details>")[0]
        assert f'href="#{anchor(witness)}"' in text
        assert f"kvfuzz replay {witness.id} --contract isolate" in section
        assert section.count('<section class="side"') == section.count('<svg class="pool"') == 2
        assert section.count("<table>") == 2
    overlaid = text.split('id="f-b12f48fe-unfixed"')[1].split("</details>")[0]
    assert overlaid.count('class="overlap"') == 4, "two layers, two planners"
    assert "shared bytes: model.layers.0 and model.layers.1" in overlaid
    split = text.split(f'id="{anchor(summary.fixed[0])}"')[1].split("</details>")[0]
    assert 'class="sharded"' in split
    assert 'class="replicated"' in split
    assert 'class="differs"' in split


def test_nothing_outside_the_file_is_named(summary: Summary, details: dict[str, Detail]) -> None:
    text = render(summary, details)
    parsed = Tags(text)
    assert not {"script", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in parsed.tags}
    links = {
        value for _, attrs in parsed.tags for name, value in attrs.items() if name in ("href", "src", "xlink:href")
    }
    assert all(link is not None and (link.startswith("#") or link == "data:,") for link in links)
    assert not re.search(r"@import|url\((?!#)", text)


def test_a_known_finding_has_the_reason_it_is_listed_with_for_a_title(summary: Summary) -> None:
    (known,) = summary.listed
    parsed = Tags(render(summary, {}))
    assert parsed.text.count(M5_KNOWN.reason) == 2, "in the index and above the finding"
    assert parsed.text.count(known.summary) == 1, "beneath its title"


def test_a_finding_without_details_is_told_in_words(summary: Summary) -> None:
    text = render(summary, {})
    assert text.count("Both plans are not shown") == len(summary.findings)
    assert "<table" not in text


def test_hostile_names_stay_text(hostile: tuple[Summary, dict[str, Detail]]) -> None:
    text = render(*hostile)
    parsed = Tags(text)
    assert not {"script", "img", "i"} & {tag for tag, attrs in parsed.tags if "class" not in attrs}
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)
    assert parsed.text.count(HOSTILE_NAMES[0]) >= 4, "in the index, the sentence, the tables and the drawing"
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\ud800]", text)
    assert "\\x1b[31m\\x00\\u202etxet\\ud800" in parsed.text


@needs_browser
@pytest.mark.parametrize("width", [1280, 375])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_stands_without_complaint_or_request(page: Page, file: Path, width: int, dark: bool) -> None:
    page.complaints.clear()
    page.requests.clear()
    page.open(file, width=width, height=900, dark=dark)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    shot = page.screenshot(whole=True)
    assert shot.startswith(PNG)
    assert len(shot) > 20_000
    assert page.complaints == []
    assert page.requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out sideways"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 24, 27)" if dark else "rgb(251, 251, 250)")


@needs_browser
def test_a_complaint_would_be_seen(page: Page, file: Path) -> None:
    page.open(file, width=800, height=600)
    page.complaints.clear()
    page.evaluate("document.body.appendChild(Object.assign(new Image(), {src: 'missing.png'}))")
    page.evaluate("new Promise(done => setTimeout(done, 200))")
    page.screenshot()
    assert page.complaints, "the page's own policy forbids it, and the browser says so"
    page.complaints.clear()


@needs_browser
def test_every_finding_is_reached_and_opened_by_keyboard(page: Page, file: Path, summary: Summary) -> None:
    page.open(file, width=1280, height=900)
    focused = "document.activeElement.closest('[data-finding]')?.dataset.finding ?? ''"
    reached: list[str] = []
    for _ in range(200):
        page.press("Tab")
        name = page.evaluate(f"document.activeElement.tagName === 'SUMMARY' ? {focused} : ''")
        if name and name not in reached:
            if not page.evaluate("document.activeElement.parentElement.open"):
                page.press("Enter")
            assert page.evaluate("document.activeElement.parentElement.open")
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", "one sees where one is"
            reached.append(name)
        if page.evaluate("document.activeElement === document.body"):
            break
    assert reached == [anchor(witness) for witness in (*summary.open, *summary.fixed, *summary.listed)]


@needs_browser
def test_a_link_in_the_index_opens_its_finding(page: Page, file: Path, summary: Summary) -> None:
    page.open(file, width=1280, height=900)
    name = anchor(summary.fixed[0])
    is_open = f"document.querySelector('[data-finding={name}]').open"
    assert page.evaluate(is_open) is False
    page.evaluate(f"document.querySelector('a[href=\"#{name}\"]').click()")
    page.screenshot()
    assert page.evaluate(is_open) is True


@needs_browser
def test_hostile_names_run_nothing(page: Page, tmp_path: Path, hostile: tuple[Summary, dict[str, Detail]]) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(render(*hostile))
    page.complaints.clear()
    page.requests.clear()
    page.open(path, width=1280, height=900)
    assert page.complaints == []
    assert page.requests == [path.as_uri()]
    assert page.evaluate("document.scripts.length") == 0


@needs_browser
def test_labels_of_a_drawing_do_not_lie_on_each_other(page: Page, file: Path) -> None:
    page.open(file, width=1280, height=900)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    met = page.evaluate(
        """[...document.querySelectorAll('svg.pool')].flatMap(svg => {
            const boxes = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBBox()]);
            return boxes.flatMap(([name, a], at) => boxes.slice(at + 1).filter(([, b]) =>
                a.x < b.x + b.width && b.x < a.x + a.width && a.y + 3 < b.y + b.height && b.y + 3 < a.y + a.height
            ).map(([other]) => `${name} and ${other}`));
        })"""
    )
    assert met == []
