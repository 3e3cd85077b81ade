"""A front as a picture, with the reference points and the choice, and as a table."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from mergekit_map.results.front import KINDS, UNKNOWN, Front, Kind, Merge
from mergekit_map.utils.files import write_atomically

if TYPE_CHECKING:
    import pandas

PREDICTED = "#1f6fb4"
MEASURED = "#d1495b"
ANCHOR = "#555555"
CHOSEN = "#e6a100"
MOST_DRAWN = 6  # tasks, whose pairs make a picture of 5 by 5
_LABELS_GO_LEFT = 0.6  # of the width of a panel
_LONGEST = 30  # letters of a name beside a mark

_Pair: TypeAlias = tuple[list[float], list[float]]  # values of two tasks, by merge


def front_table(front: Front) -> str:
    """Write the points of a front as CSV, one row a point."""
    buffer, rows = io.StringIO(), [*_rows(front)]
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def _rows(front: Front) -> Iterator[dict[str, Any]]:
    for index, point in enumerate(front.points):
        row: dict[str, Any] = {"point": index, "selected": int(index == front.selected)}
        row |= {name: point.coefficients[name] for name in front.coefficients}
        row |= _cells(front, point, *KINDS)
        row["recommended"] = int(index in front.recommended)
        yield row | _cells(front, point, "foretold")


def _cells(front: Front, point: Merge, *kinds: str) -> dict[str, Any]:
    cells = {}
    for task, kind in itertools.product(front.tasks, kinds):
        reading = (getattr(point, kind) or {}).get(task, UNKNOWN)
        cells[f"{task} {kind} value"] = reading.value
        cells[f"{task} {kind} stderr"] = reading.stderr
    return cells


def front_frame(front: Front) -> pandas.DataFrame:
    """Return the same table as a pandas frame with exact numbers."""
    import pandas  # slow; it comes with datasets

    frame = pandas.DataFrame([*_rows(front)])
    kinds = {"point": int, "selected": bool, "recommended": bool}
    return frame.astype(dict.fromkeys(frame, float) | kinds).set_index("point")


def plot_front(front: Front, path: Path) -> None:
    """Draw a front to a PNG, which is written atomically."""
    write_atomically(path, png(front_figure(front)))


def png(figure: Figure) -> bytes:
    """Draw a figure."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


class ShownFigure(Figure):
    """A figure that a notebook shows, though pyplot was never imported there."""

    def _repr_png_(self) -> bytes:
        return png(self)


def front_figure(front: Front) -> Figure:
    """Draw a front: a panel for each pair of tasks, up to ``MOST_DRAWN`` tasks."""
    tasks = list(front.tasks)[:MOST_DRAWN]
    size = max(1, len(tasks) - 1)
    shape = (1.5 + 4.2 * size, 1.2 + 3.8 * size)
    figure = ShownFigure(figsize=shape, layout="constrained")
    axes = figure.subplots(size, size, squeeze=False)
    if len(tasks) == 1:
        _draw_only_task(axes[0, 0], front, tasks[0])
    else:
        for column, row in itertools.product(range(size), repeat=2):
            if column > row:  # the same pair is below the diagonal
                axes[row, column].set_axis_off()
            else:
                _draw_pair(axes[row, column], front, (tasks[column], tasks[row + 1]))
    entries = axes[0, 0].get_legend_handles_labels()
    columns = 2 if size == 1 else 4
    figure.legend(*entries, loc="outside upper left", ncols=columns, frameon=False)
    if len(tasks) < len(front.tasks):
        words = f"{len(tasks)} of {len(front.tasks)} tasks; front.csv has all"
        figure.supxlabel(words, fontsize=9, color=ANCHOR)
    return figure


def _draw_pair(axes: Axes, front: Front, pair: tuple[str, str]) -> None:
    predicted = _values(front.points, pair, "predicted")
    axes.scatter(*predicted, s=12, color=PREDICTED, label="front, predicted", zorder=2)
    measured = [point for point in front.points if point.is_measured(*pair)]
    anchors = [anchor for anchor in front.anchors if anchor.is_measured(*pair)]
    _draw_errors(axes, [*measured, *anchors], pair)
    _mark(axes, _values(measured, pair), "o", MEASURED, "front, measured")
    _mark(axes, _values(anchors, pair), "^", ANCHOR, "base, parents, soup")
    kind: Kind = "measured" if front.chosen.is_measured(*pair) else "predicted"
    style: dict[str, Any] = {"s": 160, "zorder": 4}
    if kind == "predicted":  # a hollow star
        style |= {"facecolor": "white", "edgecolor": CHOSEN, "linewidth": 1.2}
    chosen = _values([front.chosen], pair, kind)
    _mark(axes, chosen, "*", CHOSEN, f"chosen, {kind}", **style)
    axes.set_xlabel(_axis_label(front, pair[0]), parse_math=False)
    axes.set_ylabel(_axis_label(front, pair[1]), parse_math=False)
    axes.grid(alpha=0.25)
    for anchor, x, y in zip(anchors, *_values(anchors, pair), strict=True):
        name_mark(axes, anchor.label or "", (x, y))


def _draw_errors(axes: Axes, measured: Sequence[Merge], pair: tuple[str, str]) -> None:
    xerr, yerr = ([p.measured[t].stderr or 0.0 for p in measured] for t in pair)
    style: dict[str, Any] = {"ecolor": MEASURED, "elinewidth": 0.8, "alpha": 0.5}
    places = _values(measured, pair)
    axes.errorbar(*places, xerr=xerr, yerr=yerr, fmt="none", zorder=1, **style)
    for point in measured:
        ends = [[point.readings(k)[t].value for k in KINDS] for t in pair]
        x, y = np.array(ends, np.float64)  # NaN where there is none
        axes.plot(x, y, color=MEASURED, linewidth=0.7, zorder=1)


def _draw_only_task(axes: Axes, front: Front, task: str) -> None:
    rows = (*front.anchors, *front.points)
    labels = [anchor.label or "" for anchor in front.anchors]
    labels += [f"point {index}" for index in range(len(front.points))]
    for kind, color in zip(KINDS, (PREDICTED, MEASURED), strict=True):
        readings = [merge.readings(kind)[task] for merge in rows]
        shown = [(i, r) for i, r in enumerate(readings) if r.value is not None]
        x, y = [i for i, _ in shown], [r.value or 0.0 for _, r in shown]
        yerr = [r.stderr or 0.0 for _, r in shown]
        axes.errorbar(x, y, yerr, fmt="o", color=color, label=kind)
    axes.set_xticks(range(len(rows)), labels, rotation=30, ha="right", parse_math=False)
    axes.set_ylabel(_axis_label(front, task), parse_math=False)


def _axis_label(front: Front, task: str) -> str:
    metric = front.tasks[task].metric
    unit = f" [{metric.unit}]" if metric.unit else ""
    return f"{task}{unit}, {metric.better} is better"


def _values(
    merges: Sequence[Merge], pair: tuple[str, str], kind: Kind = "measured"
) -> _Pair:
    x, y = ([m.readings(kind)[task].value or 0.0 for m in merges] for task in pair)
    return x, y


def _mark(
    axes: Axes, values: _Pair, marker: str, color: str, label: str, **style: Any
) -> None:
    """Draw filled marks with a white edge, but for what the style sets otherwise."""
    filled = {"facecolor": color, "edgecolor": "white", "linewidth": 0.6}
    known = {"marker": marker, "s": 36, **filled, "label": label, "zorder": 3}
    axes.scatter(*values, **{**known, **style})


def name_mark(axes: Axes, label: str, place: tuple[float, float]) -> None:
    """Write a name above a mark, on the side where the panel has room for it.

    Call it when everything else is drawn, which decides where the edges are.
    """
    axes.autoscale_view()
    in_pixels = axes.transData.transform(place)
    share_of_width, _ = axes.transAxes.inverted().transform(in_pixels)
    is_left = bool(share_of_width > _LABELS_GO_LEFT)
    text = axes.annotate(
        label if len(label) <= _LONGEST else f"{label[:_LONGEST]}…",
        place,
        xytext=(-5 if is_left else 5, 5),
        textcoords="offset points",
        ha="right" if is_left else "left",
        fontsize=9,
        path_effects=[withStroke(linewidth=3, foreground="white")],
        zorder=5,
        parse_math=False,  # a model's name may hold dollar signs
    )
    text.set_in_layout(False)  # a long name reaches out of its panel
