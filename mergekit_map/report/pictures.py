"""Helpers of all pictures: colours, labels and PNG files."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mergekit_map.results.front import Front
from mergekit_map.utils.files import write_atomically
from mergekit_map.utils.text import cut_short

PREDICTED = "#1f6fb4"
MEASURED = "#d1495b"
ANCHOR = "#555555"
CHOSEN = "#e6a100"

_LABELS_GO_LEFT = 0.6  # of the width of a panel
_LONGEST = 30  # letters of a name beside a mark


def axis_label(front: Front, task: str) -> str:
    """Return a task's name with its unit and direction."""
    metric = front.tasks[task].metric
    unit = f" [{metric.unit}]" if metric.unit else ""
    return f"{task}{unit}, {metric.better} is better"


def name_mark(axes: Axes, label: str, place: tuple[float, float]) -> None:
    """Write a name above a mark, on the side where the panel has room for it.

    To be called when everything else is drawn, as that decides where the edges are.
    """
    axes.autoscale_view()
    across, _ = axes.transAxes.inverted().transform(axes.transData.transform(place))
    left = bool(across > _LABELS_GO_LEFT)
    # Without math text: a model's name may hold dollar signs.
    written = axes.annotate(
        cut_short(label, _LONGEST),
        place,
        xytext=(-5 if left else 5, 5),
        textcoords="offset points",
        horizontalalignment="right" if left else "left",
        fontsize=8,
        color=ANCHOR,
        parse_math=False,
    )
    # A long one reaches out of its panel, and does not make that smaller.
    written.set_in_layout(False)


class ShownFigure(Figure):
    """A figure that a notebook shows, though pyplot was never imported there."""

    def _repr_png_(self) -> bytes:
        return png(self)


def write_png(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG, atomically.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    write_atomically(path, png(figure))


def png(figure: Figure) -> bytes:
    """Draw a figure."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()
