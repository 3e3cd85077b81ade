from __future__ import annotations

from pathlib import Path

import pytest
from fronts import Row, make_front
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread

from mergekit_map.publish.pictures import name_mark
from mergekit_map.publish.plots import plot_front
from mergekit_map.results.front import Front, Reading


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
@pytest.mark.parametrize(
    ("n_tasks", "n_points"),
    [(1, 1), (1, 5), (2, 5), (3, 5), pytest.param(5, 5, marks=pytest.mark.slow)],
)
def test_draws_a_panel_for_each_pair_of_tasks(
    n_tasks: int, n_points: int, tmp_path: Path
) -> None:
    path = tmp_path / "front.png"
    plot_front(front([f"task{i}" for i in range(n_tasks)], n_points), path)

    height, width = imread(path).shape[:2]
    panels = max(1, n_tasks - 1)
    assert width == pytest.approx(100 * (1.5 + 4.2 * panels), abs=1)
    assert height == pytest.approx(100 * (1.2 + 3.8 * panels), abs=1)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("tasks", [["one"], ["one", "two"]])
def test_merges_measured_in_part_are_drawn_hollow_and_named(
    tasks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = front(tasks)
    drawn = []
    monkeypatch.setattr(
        "mergekit_map.publish.plots.write_png", lambda figure, _: drawn.append(figure)
    )
    readings = dict.fromkeys(tasks, Reading.of(0.7, 0.1, 24))
    point = plain.points[2].model_copy(update={"estimated": readings})

    plot_front(plain, tmp_path)
    plot_front(plain.with_point(2, point), tmp_path)

    without, with_part = (
        [text.get_text() for text in figure.legends[0].get_texts()] for figure in drawn
    )
    assert set(with_part) - set(without) == {"estimated from some documents"}
    (line,) = [
        line
        for line in drawn[1].axes[0].get_lines()
        if line.get_markerfacecolor() == "white"
    ]
    assert list(line.get_ydata()) == [0.7]


@pytest.mark.picture
@pytest.mark.parametrize("tasks", [["$\\href{x}{y}$"], ["$\\no$", "$x^$"]])
def test_names_that_are_no_mathematics_are_drawn_as_they_are(
    tasks: list[str], tmp_path: Path
) -> None:
    plot_front(front(tasks), tmp_path / "front.png")

    assert (tmp_path / "front.png").stat().st_size > 1000


@pytest.mark.picture
@pytest.mark.parametrize("inverted", [False, True])
def test_a_name_stays_within_its_panel(*, inverted: bool) -> None:
    figure = Figure(figsize=(4, 4))
    axes = figure.subplots()
    places = [(float(x), 0.0) for x in range(5)]
    axes.scatter(*zip(*places, strict=True))
    if inverted:
        axes.invert_xaxis()

    for place in places:
        name_mark(axes, "a-name-of-a-model", place)

    FigureCanvasAgg(figure).draw()
    panel = axes.get_window_extent()
    for text in axes.texts:
        shown = text.get_window_extent()
        assert panel.x0 <= shown.x0 < shown.x1 <= panel.x1


@pytest.mark.picture
def test_a_long_name_makes_no_panel_smaller() -> None:
    def width(name: str) -> float:
        figure = Figure(figsize=(7, 4), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes in panels:
            axes.scatter([0, 1], [0, 1])
            name_mark(axes, name, (0.5, 0.5))
        FigureCanvasAgg(figure).draw()
        return float(panels[0].get_window_extent().width)

    assert width("W" * 400) == width("a")
