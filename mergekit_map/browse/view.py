"""The content of the browser: a front with its order and current point, as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.answer import answer, gain_table, sample
from mergekit_map.results.front import KINDS, Front, Merge, Reading
from mergekit_map.results.gains import gains

_NARROWEST = 11  # width of a column, ~-1.235e-05; a list of more tasks is scrolled
_PADDING = 2  # of a column, left and right
_MARKS = {
    ">": "the chosen merge; its recipe is recipe.yml",
    "*": "measured, and no merge of the search dominates it",
    "~": "before a number: predicted, not measured",
}


@dataclass(frozen=True, eq=False)
class View:
    """An immutable view of a front; each action replaces it."""

    front: Front
    at: int  # the current point
    sorted_by: str | None = None  # a task; None: along the front

    @classmethod
    def of(cls, front: Front) -> View:
        """Return the view of the chosen point, in the order along the front."""
        return cls(front, front.selected)

    @property
    def point(self) -> Merge:
        """Return the current point."""
        return self.front.points[self.at]

    @property
    def front_if_chosen(self) -> Front:
        """Return the front as if the current point were chosen, by its index."""
        if self.at == self.front.selected:
            return self.front
        select = SelectSpec(index=self.at)
        return self.front.model_copy(update={"selected": self.at, "select": select})

    @cached_property
    def order(self) -> list[int]:
        """List the points: the best on the task first, or along the front."""
        front = self.front
        predicted, measured = (front.utilities(front.points, kind) for kind in KINDS)
        order = np.argsort(predicted[:, 0], kind="stable")
        if self.sorted_by is not None:
            known = np.where(np.isnan(measured), predicted, measured)
            column = known[order, [*front.tasks].index(self.sorted_by)]
            order = order[np.argsort(-column, kind="stable")]  # unknown ones last
        return [*order.tolist()]


class FrontList(DataTable[Text]):
    """The points in the order of a view, with the current one highlighted."""

    def show(self, view: View) -> None:
        """Lay out the list for the width."""
        self.clear(columns=True)
        tasks = list(view.front.tasks)
        labels = {index: _label(view, index) for index in view.order}
        label_width = max(map(len, labels.values()))
        tasks_width = self.size.width - label_width - _PADDING - 1  # of the scroll bar
        task_width = max(_NARROWEST, tasks_width // len(tasks) - _PADDING)
        self.header_height = 2
        self.add_column(Text(""), width=label_width)
        for number, task in enumerate(tasks, start=1):
            heading = Text(f"{number}\N{NO-BREAK SPACE}{task}", overflow="fold")
            self.add_column(heading, width=task_width)
        for index in view.order:
            point = view.front.points[index]
            cells = [_cell(*point.best_known(task)) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = ">" if index == view.front.selected else ""
    marks += "*" if index in view.front.recommended else ""
    return f"{index} {marks}".rstrip()


def _cell(reading: Reading, source: str) -> Text:
    if reading.value is None:
        return Text("-", justify="right")
    mark, style = ("", "bold") if source == "measured" else ("~", "")
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def gains_text(view: View) -> RenderableType:
    """Return the table of gains of the current point."""
    front = view.front_if_chosen
    gained = gains(front)
    parts: list[RenderableType] = []
    number = 0
    for task, model, *texts in gain_table(front, gained):
        is_first_row = task != ""  # of its task
        if is_first_row:
            number += 1
            grid = Table.grid(padding=(0, 1))
            parts += [Text(f"{number} {task}", "bold"), grid]
        label = f"point {view.at}" if is_first_row else model
        grid.add_row(*(Text(text, overflow="fold") for text in (label, *texts)))
    return Group(*parts, Text(f"\n{sample(front, gained)}", "dim"))


def answer_text(view: View) -> RenderableType:
    """Return what the numbers mean, as if the current point were the chosen one."""
    found = answer(view.front_if_chosen)
    text = Text(f"Point {view.at}: {view.point.weights}\n\n")
    text.append(f"{found.headline}\n\n", "bold")
    text.append(f"{found.sample}\n")
    for sentence in (*found.findings, *found.details):
        if sentence != view.front.reason:  # which is of the chosen point
            text.append(f"\n{sentence}\n")
    return text


def help_text(keys: Iterable[tuple[str, str]]) -> RenderableType:
    """Return the help: keys with what they do, and the marks of the list."""
    table = Table.grid(padding=(0, 2))
    for key, about in (*keys, ("", ""), *_MARKS.items()):
        table.add_row(Text(key, "bold"), about)
    return table
