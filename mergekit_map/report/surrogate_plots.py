"""The picture of the surrogates with the measured merges, in panels by task (figure 1).

One coefficient is drawn as a curve with its error, two as contours, and more as a row
of slices through the chosen point. Of many tasks and axes some are drawn, and a table
lists the others.

Notation: ``t`` counts the tasks, ``k`` the axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mergekit_map.report.merges import MeasuredMerge, Surfaces
from mergekit_map.report.pictures import (
    ANCHOR,
    CHOSEN,
    MEASURED,
    PREDICTED,
    axis_label,
    write_png,
)
from mergekit_map.report.task_panels import drawn_tasks
from mergekit_map.results.front import KINDS, Front
from mergekit_map.surrogates.arrays import BoolArray, FloatArray

_COLUMNS = 4  # panels side by side, at most
_MOST_AXES = 8  # of which slices are drawn


class _Marks(NamedTuple):
    at: FloatArray  # (n, d)
    value: FloatArray  # (n,)
    stderr: FloatArray  # (n,), 0 where unknown
    fitted: BoolArray  # (n,)


def plot_surrogates(
    front: Front, surfaces: Surfaces, merges: Sequence[MeasuredMerge], path: Path
) -> None:
    """Draw the surrogates to a PNG."""
    figure = Figure(layout="constrained")
    drawn = drawn_tasks(front)
    if surfaces.kind == "slices":
        _draw_slices(figure, front, surfaces, drawn)
    else:
        draw = _draw_curve if surfaces.kind == "curve" else _draw_contour
        for axes, task in zip(_panel_per_task(figure, len(drawn)), drawn, strict=True):
            t = list(front.tasks).index(task)
            draw(axes, front, surfaces, t, _marks(merges, t, len(surfaces.axes)))
            axes.set_title(axis_label(front, task), fontsize=10, parse_math=False)
    if left := _left_out(front, surfaces, drawn):
        figure.suptitle(left, fontsize=10, color=ANCHOR)
    write_png(figure, path)


def _left_out(front: Front, surfaces: Surfaces, drawn: Sequence[str]) -> str:
    counts = {"tasks": (len(drawn), len(front.tasks))}
    if surfaces.kind == "slices":
        axes = len(surfaces.axes)
        counts["coefficients"] = (min(axes, _MOST_AXES), axes)
    some = [f"{n} of {of} {what}" for what, (n, of) in counts.items() if n < of]
    return f"{' and '.join(some)}; report.html has all" if some else ""


def _panel_per_task(figure: Figure, count: int) -> list[Axes]:
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure.set_size_inches(0.4 + 4.2 * columns, 0.2 + 3.6 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in panels[count:]:
        empty.set_axis_off()
    return panels[:count]


def _marks(merges: Sequence[MeasuredMerge], t: int, d: int) -> _Marks:
    known = [m for m in merges if m.at is not None and m.measured[t].value is not None]
    readings = [merge.measured[t] for merge in known]
    return _Marks(
        at=np.array([merge.at for merge in known], np.float64).reshape(-1, d),
        value=np.array([reading.value for reading in readings], np.float64),
        stderr=np.array([reading.stderr or 0.0 for reading in readings]),
        fitted=np.array([merge.fitted[t] for merge in known], np.bool_),
    )


def _draw_curve(
    axes: Axes, front: Front, surfaces: Surfaces, t: int, marks: _Marks
) -> None:
    _draw_line(axes, surfaces.nodes[0], surfaces.value[t], surfaces.stderr[t])
    axes.errorbar(
        marks.at[:, 0],
        marks.value,
        yerr=marks.stderr,
        fmt="D",
        markersize=5,
        color=MEASURED,
    )
    predicted = list(front.chosen.readings("predicted").values())[t].value
    _ring(axes, surfaces.points[front.selected, 0], predicted or 0.0)
    axes.set_xlabel(surfaces.axes[0], parse_math=False)
    axes.grid(alpha=0.25)


def _draw_contour(
    axes: Axes, front: Front, surfaces: Surfaces, t: int, marks: _Marks
) -> None:
    (x, y), value = surfaces.nodes, surfaces.value[t]
    every = [*value.ravel(), *marks.value]
    higher = list(front.metrics.values())[t].higher_is_better
    colours: dict[str, Any] = {
        "cmap": "viridis" if higher else "viridis_r",  # bright is better
        "vmin": min(every),
        "vmax": max(every),
    }
    picture = axes.pcolormesh(x, y, value, shading="gouraud", **colours)
    if value.min() < value.max():
        axes.contour(x, y, value, levels=12, colors="white", linewidths=0.5, alpha=0.6)
    axes.scatter(surfaces.points[:, 0], surfaces.points[:, 1], s=3, color="white")
    for marker, fitted in (("o", True), ("D", False)):
        some = marks.fitted == fitted
        axes.scatter(
            marks.at[some, 0],
            marks.at[some, 1],
            c=marks.value[some],
            marker=marker,
            s=48,
            edgecolor="white",
            linewidth=1.2,
            zorder=3,
            **colours,
        )
    _ring(axes, *surfaces.points[front.selected])
    axes.set_xlim(*_widened(x))
    axes.set_ylim(*_widened(y))
    axes.set_xlabel(surfaces.axes[0], parse_math=False)
    axes.set_ylabel(surfaces.axes[1], parse_math=False)
    axes.figure.colorbar(picture, ax=axes)


def _draw_slices(
    figure: Figure, front: Front, surfaces: Surfaces, drawn: Sequence[str]
) -> None:
    rows, columns = len(drawn), min(len(surfaces.axes), _MOST_AXES)
    figure.set_size_inches(0.6 + 2.6 * columns, 0.2 + 2.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharey="row")
    chosen = surfaces.slice_of(front.selected)
    grids = surfaces.value[:, chosen], surfaces.stderr[:, chosen]
    for row, task in enumerate(drawn):
        t = list(front.tasks).index(task)
        predicted, measured = (front.chosen.readings(kind)[task] for kind in KINDS)
        for k, axes in enumerate(panels[row]):
            _draw_line(axes, surfaces.nodes[k], *(grid[t, k] for grid in grids))
            place = surfaces.points[front.selected, k]
            if measured.value is not None:
                error = measured.stderr or 0.0
                axes.errorbar(place, measured.value, error, fmt="D", color=MEASURED)
            _ring(axes, place, predicted.value or 0.0)
            axes.grid(alpha=0.25)
            if row == rows - 1:
                axes.set_xlabel(surfaces.axes[k], parse_math=False)
        title = axis_label(front, task)
        panels[row][0].set_title(title, fontsize=10, loc="left", parse_math=False)


def _draw_line(
    axes: Axes, x: FloatArray, middle: FloatArray, error: FloatArray
) -> None:
    axes.fill_between(  # NaN leaves a gap
        x, middle - error, middle + error, color=PREDICTED, alpha=0.2, linewidth=0
    )
    axes.plot(x, middle, color=PREDICTED)


def _ring(axes: Axes, x: float, y: float) -> None:
    axes.scatter(
        x,
        y,
        s=200,
        marker="o",
        facecolor="none",
        edgecolor=CHOSEN,
        linewidth=2.5,
        zorder=4,
    )


def _widened(nodes: FloatArray) -> tuple[float, float]:
    room = 0.04 * float(nodes[-1] - nodes[0])
    return float(nodes[0]) - room, float(nodes[-1]) + room
