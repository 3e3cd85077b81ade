"""What a notebook shows of a front: what is known, escaped, on any background."""

from __future__ import annotations

from html import escape
from html.parser import HTMLParser

import pytest
from fronts import MATH, NOT_MEASURED, make_front

from mergekit_map.report.notebook import folded, front_html
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front

PREDICTED = [(0.5, 0.02), (2.0, 0.1)]
MEASURED = [(0.52, 0.03), (1.9, 0.05)]
ANCHORS = {
    "base": [(0.4, 0.03), (3.0, 0.1)],
    "soup": [(0.45, 0.03), (2.5, 0.1)],
    "a": [(0.6, 0.03), (2.8, 0.1)],
    "b": [(0.3, 0.03), (1.8, 0.1)],
}
OTHER = [(0.45, 0.02), (1.7, 0.1)]
TAGS = ("b", "br", "details", "div", "pre", "span", "summary")
TAGS += ("table", "td", "th", "tr")
EVIL = "<script>alert(1)</script>&\"'"


class Page(HTMLParser):
    """Reads the tables of a page, a cell as the pieces of its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[list[str]]]] = []
        self.styles: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        assert tag in TAGS
        self.styles += [value or "" for _, value in attrs]
        if tag != "br":
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"th", "td"}:
            self.tables[-1][-1].append([])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"th", "td"} & {*self.open} and data.strip():
            self.tables[-1][-1][-1].append(data.strip())


@pytest.fixture
def front() -> Front:
    points = [(PREDICTED, MEASURED), (OTHER, NOT_MEASURED)]
    return make_front(points, ANCHORS, recommended=[0])


def test_it_begins_with_the_answer(front: Front) -> None:
    shown = front_html(front, "my-search")
    found = answer(front)
    (gains_table,) = Page(shown).tables

    texts = [["".join(cell) for cell in row] for row in gains_table]
    assert texts == [[*row] for row in (found.table.headings, *found.table.rows)]
    places = [
        shown.index(escape(text))
        for text in (found.headline, found.sample, *found.findings)
    ]
    assert places == sorted(places)


def test_names_are_text_and_nothing_else() -> None:
    rows, base = [([(0.5, 0.1)], [(0.5, 0.1)])], [(0.4, 0.1)]
    front = make_front(rows, {"base": base}, tasks={EVIL: MATH})
    page = front_html(front, EVIL) + folded(EVIL, EVIL)

    # The parser refuses any tag or attribute that is not ours.
    assert Page(page).tables[0][1][0][0].startswith(EVIL)
    assert "<script" not in page
