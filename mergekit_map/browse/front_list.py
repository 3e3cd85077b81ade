"""The front as a list: a line for each point, with its value on every task."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.browse.view import View, best_reading
from mergekit_map.words import folded

_NARROWEST = 8  # of a column; a list of more tasks than fit is scrolled


class FrontList(DataTable[Text]):
    """The points in the order of a view, and which of them one is at."""

    def show(self, view: View, heading: int) -> None:
        """Write all of it for the width there is, with so many lines of headings."""
        self.clear(columns=True)
        tasks = list(view.front.tasks)
        labels = {index: _label(view, index) for index in view.order}
        first = max(map(len, labels.values()))
        width = self.size.width - first - 2 - 1  # padding, and the scroll bar
        each = max(_NARROWEST, width // len(tasks) - 2)
        headings = [
            _shortened(folded(f"{number} {task}", each), each, heading)
            for number, task in enumerate(tasks, start=1)
        ]
        self.header_height = max(map(len, headings))
        self.add_column(Text(""), width=first)
        for lines in headings:
            self.add_column(Text("\n".join(lines)), width=each)
        for index in view.order:
            cells = [_cell(view, index, task) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = {
        ">": index == view.front.selected,
        "*": index in view.front.recommended,
        "+": index == view.marked,
        "!": index in view.missing,
        "?": index >= view.saved,
    }
    there = "".join(mark for mark, holds in marks.items() if holds)
    return f"{index} {there}".rstrip()


def _cell(view: View, index: int, task: str) -> Text:
    reading, source = best_reading(view.front.points[index], task)
    if reading.value is None:
        return Text("-", justify="right")
    mark = "" if source == "measured" else "~"
    style = "bold" if source == "measured" else ""
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def _shortened(lines: list[str], width: int, most: int) -> list[str]:
    """Cut a heading; the whole name stands where the point is told of."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: width - 1]}…"]
