"""What the command line shows: progress, and the front as a table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from mergekit_map.selection import Selection
from mergekit_map.study.study import Progress as Measuring

_SECONDS_BETWEEN_LINES = 10  # where there is no terminal to draw a bar in


class TerminalReporter:
    """Shows on standard error how far a command is; a context."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._row: TaskID | None = None
        self._last_line = -float("inf")

    def __enter__(self) -> TerminalReporter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def progress(self, progress: Measuring) -> None:
        """Show which merge is being measured on which task."""
        weights = " ".join(f"{v:.3f}" for v in progress.coefficients.values())
        text = f"{progress.role} ({weights}) {progress.task}"
        self._show(text, progress.done, progress.total)

    def stage(self, name: str, fraction: float) -> None:
        """Show how far a stage of the demo's training is."""
        self._show(name, round(100 * fraction), 100)

    def notice(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def _show(self, text: str, done: int, total: int) -> None:
        if self._row is None:
            self._row = self._bar.add_task(text, total=total)
        self._bar.update(self._row, description=text, completed=done, total=total)
        now = time.monotonic()
        if self._bar.disable and now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._console.print(Text(f"{done}/{total} {text}"), soft_wrap=True)
            self._last_line = now


def show_front(front: Mapping[str, Any]) -> None:
    """Print the measured points of a front, the anchors, and the fits."""
    console = Console()
    count = len(front["points"])
    table = Table(
        title=f"Front of {count} merges: predicted > measured", title_justify="left"
    )
    table.add_column("merge")
    for name in front["coefficients"]:
        table.add_column(Text(name), justify="right")
    for task, about in front["tasks"].items():
        better = "higher" if about["direction"] == "maximize" else "lower"
        table.add_column(Text(f"{task}\n({better} is better)"), justify="right")
    for anchor in front["anchors"]:
        table.add_row(*_cells(front, anchor, anchor["label"]))
    table.add_section()
    for index, point in enumerate(front["points"]):
        if any(m["value"] is not None for m in point["measured"].values()):
            chosen = index == front["selected"]
            label = f"{index} chosen" if chosen else f"{index}"
            style = "bold" if chosen else None
            table.add_row(*_cells(front, point, label), style=style)
    console.print(table)
    for task, about in front["tasks"].items():
        fit = about["fit"]
        console.print(
            Text(
                f"{task}: R² {_number(fit['r2'])} on the {fit['n']} fitted merges, "
                f"{_number(fit['loo_r2'])} left out one by one"
            )
        )


def show_point(selection: Selection, point: Mapping[str, Any]) -> None:
    """Print what was predicted and measured of one point."""
    for task, about in selection.tasks.items():
        unit = f" {about['unit']}" if about["unit"] else ""
        predicted = _reading(point["predicted"][task])
        measured = _reading(point["measured"][task])
        Console().print(
            Text(f"  {task}: predicted {predicted}, measured {measured}{unit}")
        )


def _cells(
    front: Mapping[str, Any], point: Mapping[str, Any], label: str
) -> list[Text]:
    weights = [f"{point['coefficients'][n]:.3f}" for n in front["coefficients"]]
    readings = []
    for task in front["tasks"]:
        predicted = _number(point["predicted"][task]["value"])
        readings.append(f"{predicted} > {_reading(point['measured'][task])}")
    return [Text(cell) for cell in (label, *weights, *readings)]


def _reading(reading: Mapping[str, Any]) -> str:
    if reading["value"] is None:
        return "-"
    stderr = reading["stderr"]
    return _number(reading["value"]) + (f"±{stderr:.2g}" if stderr else "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
