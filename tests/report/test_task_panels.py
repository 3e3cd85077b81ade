"""Pictures of many tasks: some are drawn, the others named in a table."""

from __future__ import annotations

import pytest
from fronts import NOT_MEASURED, make_front

from mergekit_map.report.pictures import png
from mergekit_map.report.plots import front_figure
from mergekit_map.report.task_panels import MOST_DRAWN
from mergekit_map.results.front import Front

ABOUT = {"direction": "maximize", "range": [0, 1], "unit": ""}


def front_of(n_tasks: int, **others: object) -> Front:
    def row(index: int) -> list[tuple[float, float]]:
        return [(index + 0.1 * t, 0.01) for t in range(n_tasks)]

    tasks = {f"task_{t}": ABOUT for t in range(n_tasks)}
    anchors = {"base": row(0), "one": row(2), "soup": row(1)}
    rows = [(row(3), row(4)), (row(5), NOT_MEASURED[:1] * n_tasks)]
    return make_front(rows, anchors, tasks=tasks, **others)


def words(front: Front) -> list[str]:
    return [text.get_text() for axes in front_figure(front).axes for text in axes.texts]


@pytest.mark.picture
@pytest.mark.parametrize("n_tasks", [MOST_DRAWN, 200])
def test_a_picture_is_no_larger_the_more_tasks_there_are(n_tasks: int) -> None:
    figure = front_figure(front_of(n_tasks))

    width, height = figure.get_size_inches()
    panels = min(n_tasks, MOST_DRAWN) - 1
    assert (width, height) == pytest.approx((1.5 + 4.2 * panels, 1.2 + 3.8 * panels))
    assert len(figure.axes) == panels**2 + (n_tasks > MOST_DRAWN)
    if n_tasks != MOST_DRAWN + 1:  # drawing takes a second
        assert len(png(figure)) < 2e6


def test_tasks_that_are_not_drawn_stand_in_a_table_with_their_values() -> None:
    said = words(front_of(8))

    assert "6 of 8 tasks are drawn; the others:" in said
    place = said.index("task_7")
    assert said[place : place + 4] == [
        "task_7",
        "0.7 ± 0.01",  # base
        "2.7 ± 0.01",  # best single model
        "4.7 ± 0.01",  # chosen, as measured
    ]
    assert "task_5" not in said
    assert not any(text.startswith("and ") for text in said)
