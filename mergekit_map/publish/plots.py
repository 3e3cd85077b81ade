"""The front as a picture: predicted and measured points, anchors, the chosen one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mergekit_map.publish.pictures import (
    ANCHOR,
    CHOSEN,
    MEASURED,
    PREDICTED,
    write_png,
)


def plot_front(front: Mapping[str, Any], path: Path) -> None:
    """Draw ``front.json`` to a PNG: one panel for two tasks, a pair each for more."""
    tasks = list(front["tasks"])
    size = max(1, len(tasks) - 1)
    figure = Figure(figsize=(1.5 + 4.2 * size, 1.2 + 3.8 * size), layout="constrained")
    axes = figure.subplots(size, size, squeeze=False)
    if len(tasks) == 1:
        _draw_one(axes[0, 0], front, tasks[0])
    for column, row in itertools.product(range(size), repeat=2):
        if len(tasks) > 1 and column > row:
            axes[row, column].set_axis_off()
        elif len(tasks) > 1:
            _draw_pair(axes[row, column], front, tasks[column], tasks[row + 1])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    columns = 2 if size == 1 else 4
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False
    )
    write_png(figure, path)


def _draw_pair(axes: Axes, front: Mapping[str, Any], x: str, y: str) -> None:
    points = front["points"]
    axes.scatter(
        _readings(points, "predicted", x, "value"),
        _readings(points, "predicted", y, "value"),
        s=12,
        color=PREDICTED,
        label="front, predicted",
        zorder=2,
    )
    measured = [p for p in points if _is_measured(p, x, y)]
    # Errors of the measured points alone: those of a whole front hide it.
    for kind, color in (("predicted", PREDICTED), ("measured", MEASURED)):
        axes.errorbar(
            _readings(measured, kind, x, "value"),
            _readings(measured, kind, y, "value"),
            xerr=_readings(measured, kind, x, "stderr"),
            yerr=_readings(measured, kind, y, "stderr"),
            fmt="none",
            ecolor=color,
            elinewidth=0.8,
            alpha=0.5,
            zorder=1,
        )
    for point in measured:  # a line from each prediction to its measurement
        axes.plot(
            [point[kind][x]["value"] for kind in ("predicted", "measured")],
            [point[kind][y]["value"] for kind in ("predicted", "measured")],
            color=MEASURED,
            linewidth=0.7,
            zorder=1,
        )
    _scatter(axes, measured, x, y, marker="o", color=MEASURED, label="front, measured")
    anchors = [p for p in front["anchors"] if _is_measured(p, x, y)]
    _scatter(axes, anchors, x, y, marker="^", color=ANCHOR, label="anchors, measured")
    for anchor in anchors:
        place = (anchor["measured"][x]["value"], anchor["measured"][y]["value"])
        _annotate(axes, anchor["label"], place)
    chosen = [points[front["selected"]]]
    if _is_measured(chosen[0], x, y):
        _scatter(axes, chosen, x, y, marker="*", color=CHOSEN, label="chosen, measured")
    axes.set_xlabel(_axis_label(front, x))
    axes.set_ylabel(_axis_label(front, y))
    axes.grid(alpha=0.25)


def _draw_one(axes: Axes, front: Mapping[str, Any], task: str) -> None:
    """Draw a front of one task: a point per merge, in a row."""
    rows = [*front["anchors"], *front["points"]]
    labels = [*(a["label"] for a in front["anchors"]), "best"]
    for kind, color in (("predicted", PREDICTED), ("measured", MEASURED)):
        shown = [
            (i, r) for i, r in enumerate(rows) if r[kind][task]["value"] is not None
        ]
        axes.errorbar(
            [i for i, _ in shown],
            [r[kind][task]["value"] for _, r in shown],
            yerr=[r[kind][task]["stderr"] or 0.0 for _, r in shown],
            fmt="o",
            color=color,
            label=kind,
        )
    axes.set_xticks(
        range(len(rows)), labels[: len(rows)], rotation=30, ha="right", parse_math=False
    )
    axes.set_ylabel(_axis_label(front, task))


def _readings(points: list[Any], kind: str, task: str, part: str) -> list[float]:
    return [p[kind][task][part] or 0.0 for p in points]


def _is_measured(point: Mapping[str, Any], *tasks: str) -> bool:
    return all(point["measured"][task]["value"] is not None for task in tasks)


def _scatter(
    axes: Axes,
    points: list[Any],
    x: str,
    y: str,
    *,
    marker: str,
    color: str,
    label: str,
) -> None:
    axes.scatter(
        [p["measured"][x]["value"] for p in points],
        [p["measured"][y]["value"] for p in points],
        marker=marker,
        s=160 if marker == "*" else 36,
        facecolor=color,
        edgecolor="white",
        linewidth=0.6,
        label=label,
        zorder=4 if marker == "*" else 3,
    )


def _annotate(axes: Axes, label: str, place: tuple[float, float]) -> None:
    # Without math text: a model's name may hold dollar signs.
    axes.annotate(
        label,
        place,
        xytext=(5, 5),
        textcoords="offset points",
        fontsize=8,
        color=ANCHOR,
        parse_math=False,
    )


def _axis_label(front: Mapping[str, Any], task: str) -> str:
    about = front["tasks"][task]
    unit = f" [{about['unit']}]" if about["unit"] else ""
    better = "higher" if about["direction"] == "maximize" else "lower"
    return f"{task}{unit}, {better} is better"
