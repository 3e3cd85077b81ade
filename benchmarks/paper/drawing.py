"""What the pictures of experiments share: better is to the right and above."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.report.plots import ANCHOR, CHOSEN, MEASURED, PREDICTED
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import Metric

OTHER = "#7a9e3b"
THIRD = "#8a5bb5"
DIRECT = "#999999"
__all__ = ["ANCHOR", "CHOSEN", "DIRECT", "MEASURED", "OTHER", "PREDICTED", "THIRD"]


def new_figure(rows: int, columns: int, size: float = 4.2) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, row by row."""
    figure = Figure(figsize=(size * columns, 0.9 * size * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in panels:
        axes.grid(alpha=0.25)
    return figure, panels


def name_axes(axes: Axes, metrics: Mapping[str, Metric]) -> None:
    """Name the tasks of a panel; axes of losses run the other way."""
    for axis, (task, metric) in zip("xy", metrics.items(), strict=True):
        unit = f" [{metric.unit}]" if metric.unit else ""
        text = f"{task}{unit}, {metric.better} is better"
        getattr(axes, f"set_{axis}label")(text, parse_math=False)
        if not metric.higher_is_better:
            getattr(axes, f"invert_{axis}axis")()


def front_line(
    axes: Axes, values: FloatArray, utilities: FloatArray, **how: str
) -> None:
    """Join what no other dominates, of values (n, 2), by a line."""
    best = non_dominated(utilities)
    order = np.argsort(values[best][:, 0])
    axes.plot(*values[best][order].T, **{"linewidth": "1", **how})


def legend_above(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Say above all panels what the marks of one are."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper left", ncols=columns, frameon=False
    )
