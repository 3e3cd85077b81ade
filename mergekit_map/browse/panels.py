"""Texts of the screen: the front as a list, gains, comparisons and keys.

They are tables of rich, which fold names and cut no number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.browse.state import View, best_reading
from mergekit_map.results.answer import answer, gain_table, sample
from mergekit_map.results.findings import difference
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import errors_of_differences, gains
from mergekit_map.results.paired import PairedMerges

_NARROWEST = 8  # of a column; a list of more tasks than fit is scrolled
_COLOURS = {"better": "green", "worse": "red"}
_MARKS = {
    ">": "the chosen merge; its recipe is recipe.yml",
    "*": "measured, and no measured merge is better on every task",
    "!": "misses a limit",
    "?": "between points of the front; it gets a recipe when it is saved",
    "~": "before a number: predicted, not measured",
}


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
            cells = [_cell(*best_reading(point, task)) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = {
        ">": index == view.front.selected,
        "*": index in view.front.recommended,
        "!": index in view.missing,
        "?": index >= view.saved,
    }
    return f"{index} {''.join(mark for mark, holds in marks.items() if holds)}".rstrip()


def _cell(reading: Reading, source: str) -> Text:
    if reading.value is None:
        return Text("-", justify="right")
    mark, style = ("", "bold") if source == "measured" else ("~", "")
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def weights_text(point: Merge) -> Text:
    """Return the weights of a point."""
    text = ", ".join(f"{name} {v:.3f}" for name, v in point.coefficients.items())
    return Text(text, "bold")


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
        for word, colour in _COLOURS.items():
            if f" {word} by " in texts[-1] and "," not in texts[-1]:
                cells[-1].stylize(colour)
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


def compared_text(view: View, label: str, other: Merge) -> RenderableType:
    """Return the current point and another merge, side by side.

    A positive gain means that the point is better. The weights have their difference.
    """
    front, point, name = view.front, view.point, f"point {view.at}"
    weights = _table("weight", name, label, "difference")
    for key, a in point.coefficients.items():
        b = other.coefficients.get(key)
        cells = ("-", "-") if b is None else (f"{b:.3f}", f"{a - b:+.3f}")
        weights.add_row(key, f"{a:.3f}", *cells)
    tasks = _table("task", name, label, f"gain of {name}")
    errors = _errors(front, point, other)
    for (task, about), error in zip(front.tasks.items(), errors, strict=True):
        known = [best_reading(merge, task) for merge in (point, other)]
        values = [("" if s == "measured" else "~") + str(r) for r, s in known]
        (x, _), (y, _) = known
        gain = "-"
        if x.value is not None and y.value is not None:
            gain = difference(about.metric.sign * (x.value - y.value), error)
        tasks.add_row(f"{task} ({about.metric.better})", *values, gain)
    hint = "\nA positive gain is better. ~ predicted. On the documents of the search."
    return Group(weights, Text(), tasks, Text(hint, "dim"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _errors(front: Front, *merges: Merge) -> Iterator[float]:
    """Yield the standard error of a difference by task, paired where possible."""
    rows = [[i for i, m in enumerate(front.all_merges) if m is one] for one in merges]
    paired = PairedMerges.of(front, *map(np.array, rows)).stderr[0]
    for task, stderr in zip(front.tasks, map(float, paired), strict=True):
        alone = [
            errors_of_differences(front, merge, task).max()
            if merge.is_measured(task)
            else best_reading(merge, task)[0].stderr or math.nan
            for merge in merges
        ]
        yield stderr if all(m.is_measured(task) for m in merges) else math.hypot(*alone)


def help_text(keys: Iterable[tuple[str, str]]) -> RenderableType:
    """Return the help: keys with what they do, and the marks of the list."""
    table = Table.grid(padding=(0, 2))
    for key, about in (*keys, ("", ""), *_MARKS.items()):
        table.add_row(Text(key, "bold"), about)
    return table
