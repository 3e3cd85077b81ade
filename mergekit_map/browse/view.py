"""The content of the browser: a front with its order and current point, as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.results.answer import answer, gain_table, sample
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import gains

_NARROWEST = 8  # of a column; a list of more tasks than fit is scrolled
_MARKS = {
    ">": "the chosen merge; its recipe is recipe.yml",
    "*": "measured, and no measured merge is better on every task",
    "~": "before a number: predicted, not measured",
}


@dataclass(frozen=True, eq=False)
class View:
    """An immutable view of a front; each action returns a new one."""

    front: Front
    at: int  # the current point
    order: tuple[int, ...]  # of the points in the list
    sorted_by: str | None = None  # a task; None: along the front

    @classmethod
    def of(cls, front: Front) -> View:
        """Return the view of the chosen point, in the order along the front."""
        return cls(front, front.selected, _along(front))

    @property
    def point(self) -> Merge:
        """Return the current point."""
        return self.front.points[self.at]

    @property
    def here(self) -> Front:
        """Return the front as if the current point were chosen, by its index."""
        index = {} if self.at == self.front.selected else {"index": self.at}
        select = self.front.select.model_copy(update=index)
        return self.front.model_copy(update={"selected": self.at, "select": select})

    def moved(self, index: int) -> View:
        """Return the view of another point."""
        return replace(self, at=index)

    def sorted(self, task: str | None) -> View:
        """Return the view with the best on a task first, or in order of the front."""
        along = _along(self.front)
        if task is None:
            return replace(self, order=along, sorted_by=None)
        metric, points = self.front.tasks[task].metric, self.front.points

        def utility(index: int) -> float:
            value = points[index].best_known(task)[0].value
            return -np.inf if value is None else metric.utility(value)

        best = sorted(along, key=utility, reverse=True)
        return replace(self, order=tuple(best), sorted_by=task)


def _along(front: Front) -> tuple[int, ...]:
    """Order the points from the worst to the best on the first task, as predicted."""
    first = front.utilities(front.points, "predicted")[:, 0]
    return tuple(np.argsort(first, kind="stable").tolist())


class FrontList(DataTable[Text]):
    """The points in the order of a view, with the current one highlighted."""

    def show(self, view: View) -> None:
        """Lay out the list for the width."""
        self.clear(columns=True)
        tasks = list(view.front.tasks)
        labels = {index: _label(view, index) for index in view.order}
        first = max(map(len, labels.values()))
        width = self.size.width - first - 2 - 1  # padding, and the scroll bar
        each = max(_NARROWEST, width // len(tasks) - 2)
        self.header_height = 2
        self.add_column(Text(""), width=first)
        for number, task in enumerate(tasks, start=1):
            self.add_column(
                Text(f"{number}\N{NO-BREAK SPACE}{task}", overflow="fold"), width=each
            )
        for index in view.order:
            point = view.front.points[index]
            cells = [_cell(*point.best_known(task)) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = ">" * (index == view.front.selected)
    marks += "*" * (index in view.front.recommended)
    return f"{index} {marks}".rstrip()


def _cell(reading: Reading, source: str) -> Text:
    if reading.value is None:
        return Text("-", justify="right")
    mark, style = ("", "bold") if source == "measured" else ("~", "")
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def gains_text(view: View) -> RenderableType:
    """Return the table of gains of the current point."""
    parts: list[RenderableType] = []
    found, number = gains(view.here), 0
    for task, name, *texts in gain_table(view.here, found):
        if task:
            number += 1
            grid = Table.grid(padding=(0, 1))
            parts += [Text(f"{number} {task}", "bold"), grid]
        cells = [Text(text, overflow="fold") for text in texts]
        label = f"point {view.at}" if task else name
        grid.add_row(Text(label, overflow="fold"), *cells)
    return Group(*parts, Text(f"\n{sample(view.here, found)}", "dim"))


def answer_text(view: View) -> RenderableType:
    """Return what the numbers mean, as if the current point were the chosen one."""
    found, name = answer(view.here), f"point {view.at}"
    text = Text(f"Point {view.at}: {view.point.weights}\n\n")
    text.append(f"{found.headline}\n\n", "bold").append(f"{found.sample}\n")
    for sentence in (*found.findings, *found.details):
        if sentence != view.front.reason:  # of another point
            text.append(f"\n{sentence.replace('the chosen merge', name)}\n")
    return text


def help_text(keys: Iterable[tuple[str, str]]) -> RenderableType:
    """Return the help: keys with what they do, and the marks of the list."""
    table = Table.grid(padding=(0, 2))
    for key, about in (*keys, ("", ""), *_MARKS.items()):
        table.add_row(Text(key, "bold"), about)
    return table
