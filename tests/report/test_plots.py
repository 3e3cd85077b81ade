"""Pictures of a front, and the tables that a notebook shows: what is known, escaped."""

from __future__ import annotations

import re
from html import escape, unescape

import pytest
from fronts import MATH, Row, make_front
from fronts import front as one_point

from mergekit_map.report.plots import MOST_DRAWN, front_figure, png
from mergekit_map.results.answer import HEADINGS, answer
from mergekit_map.results.front import Front
from mergekit_map.workflows.results import folded, front_html


def front(tasks: list[str], n_points: int = 5) -> Front:
    def row(index: int) -> Row:
        return [(index * (-1) ** k + 0.5, 0.01) for k, _ in enumerate(tasks)]

    missing: Row = [(None, None)] * len(tasks)
    about = {"direction": "minimize", "range": [None, None], "unit": "nats/token"}
    return make_front(
        [(row(i), row(i) if i % 2 else missing) for i in range(n_points)],
        {"$base_$ <b>": row(1)},
        selected=min(1, n_points - 1),
        tasks=dict.fromkeys(tasks, about),
    )


@pytest.mark.slow
@pytest.mark.picture
@pytest.mark.parametrize(("n_tasks", "n_points"), [(1, 1), (2, 5), (20, 5)])
def test_draws_a_panel_for_each_pair_of_some_tasks(n_tasks: int, n_points: int) -> None:
    # Names that are no mathematics are drawn as they are.
    figure = front_figure(front([f"$\\no{{{i}$ x^$" for i in range(n_tasks)], n_points))

    assert png(figure)
    panels = max(1, min(n_tasks, MOST_DRAWN) - 1)
    assert sum(a.axison for a in figure.axes) == panels * (panels + 1) // 2


TAGS = {"b", "details", "div", "i", "pre", "summary", "table", "td", "th", "tr"}
EVIL = "<script>alert(1)</script>&\"'"


def test_a_notebook_begins_with_the_answer() -> None:
    shown, found = front_html(one_point(), "my-search"), answer(one_point())

    texts = [unescape(cell) for cell in re.findall(r"<t[hd]>(.*?)</t[hd]>", shown)]
    assert texts == [cell for row in (HEADINGS, *found.table) for cell in row]
    places = [
        shown.index(escape(text))
        for text in (found.headline, found.sample, *found.findings)
    ]
    assert places == sorted(places)


def test_names_are_text_and_nothing_else() -> None:
    rows, base = [([(0.5, 0.1)], [(0.5, 0.1)])], [(0.4, 0.1)]
    evil = make_front(rows, {"base": base}, tasks={EVIL: MATH})
    page = front_html(evil, EVIL) + folded(EVIL, EVIL)

    assert page.count(escape(EVIL)) > 3
    assert {*re.findall(r"<(?:/?(\w+)>)?", page)} <= TAGS
