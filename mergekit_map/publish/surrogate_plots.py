"""The surrogates as a picture, with the merges that were measured (figure 1).

A curve with its error over one coefficient, contours over two, and of more a row of
slices through the chosen point.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mergekit_map.publish.pictures import CHOSEN, MEASURED, PREDICTED, write_png

FloatArray = NDArray[np.float64]

_COLUMNS = 4  # panels side by side, at most


def plot_surrogates(content: Mapping[str, Any], path: Path) -> None:
    """Draw the surrogates of what ``report_content`` gives to a PNG."""
    figure = Figure(layout="constrained")
    draw = {"curve": _draw_curve, "contour": _draw_contour}
    kind = content["surfaces"]["kind"]
    if kind in draw:
        panels = _panel_per_task(figure, len(content["tasks"]))
        for t, axes in enumerate(panels):
            draw[kind](axes, content, t)
            axes.set_title(_title(content["tasks"][t]), fontsize=10, parse_math=False)
    else:
        _draw_slices(figure, content)
    write_png(figure, path)


def _panel_per_task(figure: Figure, count: int) -> list[Axes]:
    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure.set_size_inches(0.4 + 4.2 * columns, 0.2 + 3.6 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in panels[count:]:
        empty.set_axis_off()
    return panels[:count]


def _draw_curve(axes: Axes, content: Mapping[str, Any], t: int) -> None:
    surfaces = content["surfaces"]
    x = np.array(surfaces["nodes"][0])
    _draw_line(axes, x, surfaces["value"][t], surfaces["stderr"][t])
    merges = _measured_at(content, t)
    axes.errorbar(
        [merge["at"][0] for merge in merges],
        [merge["measured"][t][0] for merge in merges],
        yerr=[merge["measured"][t][1] or 0.0 for merge in merges],
        fmt="D",
        markersize=5,
        color=MEASURED,
    )
    index = content["selected"]
    chosen = content["points"][index]["predicted"][t][0]
    _ring(axes, surfaces["points"][index][0], chosen)
    axes.set_xlabel(surfaces["axes"][0], parse_math=False)
    axes.grid(alpha=0.25)


def _draw_contour(axes: Axes, content: Mapping[str, Any], t: int) -> None:
    """Draw what is predicted, and each measured value as a mark of its colour."""
    surfaces, task = content["surfaces"], content["tasks"][t]
    x, y = (np.array(nodes) for nodes in surfaces["nodes"])
    value = np.array(surfaces["value"][t])
    merges = _measured_at(content, t)
    every = [*value.ravel(), *(merge["measured"][t][0] for merge in merges)]
    colours: dict[str, Any] = {
        "cmap": "viridis" if task["higher"] else "viridis_r",  # bright is better
        "vmin": min(every),
        "vmax": max(every),
    }
    picture = axes.pcolormesh(x, y, value, shading="gouraud", **colours)
    if value.min() < value.max():
        axes.contour(x, y, value, levels=12, colors="white", linewidths=0.5, alpha=0.6)
    front = np.array(surfaces["points"])
    axes.scatter(front[:, 0], front[:, 1], s=3, color="white")
    for marker, fitted in (("o", True), ("D", False)):
        some = [merge for merge in merges if merge["fitted"][t] == fitted]
        axes.scatter(
            [merge["at"][0] for merge in some],
            [merge["at"][1] for merge in some],
            c=[merge["measured"][t][0] for merge in some],
            marker=marker,
            s=48,
            edgecolor="white",
            linewidth=1.2,
            zorder=3,
            **colours,
        )
    _ring(axes, front[content["selected"], 0], front[content["selected"], 1])
    axes.set_xlim(*_widened(x))
    axes.set_ylim(*_widened(y))
    axes.set_xlabel(surfaces["axes"][0], parse_math=False)
    axes.set_ylabel(surfaces["axes"][1], parse_math=False)
    axes.figure.colorbar(picture, ax=axes)


def _draw_slices(figure: Figure, content: Mapping[str, Any]) -> None:
    """Draw a row per task, along one coefficient after the other."""
    surfaces, index = content["surfaces"], content["selected"]
    rows, columns = len(content["tasks"]), len(surfaces["axes"])
    figure.set_size_inches(0.6 + 2.6 * columns, 0.2 + 2.3 * rows)
    panels = figure.subplots(rows, columns, squeeze=False, sharey="row")
    for t, task in enumerate(content["tasks"]):
        point = content["points"][index]
        for k, axes in enumerate(panels[t]):
            lines = (surfaces[kind][t][index][k] for kind in ("value", "stderr"))
            _draw_line(axes, np.array(surfaces["nodes"][k]), *lines)
            place = surfaces["points"][index][k]
            if point["measured"][t] is not None:
                value, stderr = point["measured"][t]
                axes.errorbar(place, value, yerr=stderr or 0.0, fmt="D", color=MEASURED)
            _ring(axes, place, point["predicted"][t][0])
            axes.grid(alpha=0.25)
            if t == rows - 1:
                axes.set_xlabel(surfaces["axes"][k], parse_math=False)
        panels[t][0].set_title(_title(task), fontsize=10, loc="left", parse_math=False)


def _draw_line(
    axes: Axes,
    x: FloatArray,
    value: Sequence[float],
    stderr: Sequence[float | None],
) -> None:
    middle = np.array(value)
    error = np.array(stderr, dtype=np.float64)  # null is NaN, and leaves a gap
    axes.fill_between(
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
    """Leave room for the marks at the ends of an axis."""
    room = 0.04 * float(nodes[-1] - nodes[0])
    return float(nodes[0]) - room, float(nodes[-1]) + room


def _measured_at(content: Mapping[str, Any], t: int) -> list[Mapping[str, Any]]:
    return [m for m in content["merges"] if m["at"] and m["measured"][t]]


def _title(task: Mapping[str, Any]) -> str:
    unit = f" [{task['unit']}]" if task["unit"] else ""
    return f"{task['name']}{unit}, {'higher' if task['higher'] else 'lower'} is better"
