"""A front in a notebook: the gain of the choice, and points to choose from.

Small tables with inline style that leave colours to the page, for dark and light
themes. All text of the user is escaped, and there is no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from mergekit_map.optimize.selection import spread
from mergekit_map.results.answer import answer
from mergekit_map.results.front import Front, Merge, Reading

_N_POINTS = 8  # about, of those that were not measured
_TABLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.4em 0"
_CELL = "padding:.15em .7em;text-align:{};vertical-align:top;white-space:nowrap"
_SMALL = "font-size:85%;opacity:.75;font-weight:normal"


def front_html(front: Front, heading: str, *, points: bool = True) -> str:
    """Return the answer of the chosen point and, if asked for, points of the front."""
    found = answer(front)
    rows = [[escape(cell) for cell in row] for row in found.table.rows]
    parts = [
        f"<b>{escape(heading)}</b>",
        escape(found.headline),
        _table([escape(cell) for cell in found.table.headings], rows),
        *map(_small, (found.sample, *found.findings)),
    ]
    if points:
        parts.append(_point_table(front))
    return "".join(f"<div>{part}</div>" for part in parts)


def folded(title: str, text: str) -> str:
    """Return a text that opens on a click."""
    return (
        f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre>"
        "</details>"
    )


def _point_table(front: Front) -> str:
    shown = _shown_points(front)
    rows = [_point_row(front, index) for index in shown]
    weights = [_two_lines(name, "weight") for name in front.coefficients]
    headings = ["point", *weights, *_task_headings(front)]
    count = f"{len(shown)} of {len(front.points)} points of the front"
    star = "; * recommended: no measured merge is better on every task"
    title = count + (star if front.recommended else "")
    return _small(title) + _table(headings, rows)


def _shown_points(front: Front) -> list[int]:
    """List the points that show the whole front, and all measured or chosen ones."""
    values = front.utilities(front.points, "predicted")
    shown = {front.selected, *front.recommended, *map(int, spread(values, _N_POINTS))}
    return sorted(shown)


def _point_row(front: Front, index: int) -> list[str]:
    point = front.points[index]
    label = f"{index} *" if index in front.recommended else f"{index}"
    weights = [f"{point.coefficients[name]:.3f}" for name in front.coefficients]
    cells = [label, *weights, *(_reading_at(point, task) for task in front.tasks)]
    return [f"<b>{c}</b>" for c in cells] if index == front.selected else cells


def _reading_at(point: Merge, task: str) -> str:
    if point.is_measured(task):
        return _known(point.measured[task])
    return _known(point.readings("predicted")[task], "predicted")


def _known(reading: Reading, how: str = "") -> str:
    return escape(str(reading)) + (f" {_small(how)}" if how else "")


def _task_headings(front: Front) -> list[str]:
    return [
        _two_lines(name, ", ".join(task.facts)) for name, task in front.tasks.items()
    ]


def _two_lines(text: str, below: str) -> str:
    return f"{escape(text)}<br>{_small(below)}"


def _small(text: str) -> str:
    return f'<span style="{_SMALL}">{escape(text)}</span>'


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are markup already."""
    head = _row("th", headings)
    body = "".join(_row("td", row) for row in rows)
    table = f'<table style="{_TABLE}">{head}{body}</table>'
    return f'<div style="overflow-x:auto">{table}</div>'


def _row(tag: str, cells: Sequence[str]) -> str:
    aligned = ["left", *["right"] * (len(cells) - 1)]
    return (
        "<tr>"
        + "".join(
            f'<{tag} style="{_CELL.format(side)}">{cell}</{tag}>'
            for side, cell in zip(aligned, cells, strict=True)
        )
        + "</tr>"
    )
