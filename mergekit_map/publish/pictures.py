"""What all pictures share: the colours of what is shown, and how a PNG is written."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from mergekit_map.files import write_atomically
from mergekit_map.results.front import Front

PREDICTED = "#1f6fb4"
MEASURED = "#d1495b"
ANCHOR = "#555555"
CHOSEN = "#e6a100"


def axis_label(front: Front, task: str) -> str:
    """Name a task with its unit, and say which values are better."""
    metric = front.tasks[task].metric
    unit = f" [{metric.unit}]" if metric.unit else ""
    return f"{task}{unit}, {metric.better} is better"


class ShownFigure(Figure):
    """A figure that a notebook shows, though pyplot was never imported there."""

    def _repr_png_(self) -> bytes:
        return png(self)


def write_png(figure: Figure, path: Path) -> None:
    """Draw a figure to a PNG, which appears whole.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    write_atomically(path, png(figure))


def png(figure: Figure) -> bytes:
    """Draw a figure."""
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()
