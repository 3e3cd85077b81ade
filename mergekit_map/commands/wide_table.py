"""Tables of numbers that a terminal has room for: none is ever cut or left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mergekit_map.words import folded

_NARROWEST = 6  # of a heading that is folded to make room
_LABEL = 14  # of a label that is
_AROUND = 4  # the label and the ends of a line


@dataclass(frozen=True)
class Row:
    """A line of a table."""

    label: str
    cells: Sequence[str]  # by column; all empty: nothing to show there
    style: str = ""
    ends_section: bool = False


@dataclass(frozen=True)
class Column:
    """What stands above the numbers of a column."""

    name: str  # folded where there is little room
    note: str = ""  # below it


def wide_tables(
    parts: Sequence[Sequence[Column]], rows: Sequence[Row], heading: str, width: int
) -> Iterator[Table]:
    """Put numbers into one table, or where that is too wide one for each part.

    A part that is still too wide becomes several tables, whose rows are labelled again.
    """
    columns = [column for part in parts for column in part]
    every = [*range(len(columns))]
    labels = max(len(row.label) for row in [*rows, Row(heading, ())])
    if not _fitting(columns, rows, every, width - labels - _AROUND):
        labels = min(labels, _LABEL)
    room = width - labels - _AROUND
    groups = [every]
    if not _fitting(columns, rows, every, room):
        groups, first = [], 0
        for part in parts:
            groups += _groups(columns, rows, range(first, first + len(part)), room)
            first += len(part)
    short = [replace(row, label="\n".join(folded(row.label, labels))) for row in rows]
    for group in groups:
        yield _table(columns, short, group, heading, room)


def _groups(
    columns: Sequence[Column], rows: Sequence[Row], part: Sequence[int], room: int
) -> list[list[int]]:
    """Divide the columns of a part, as many together as there is room for."""
    groups: list[list[int]] = []
    for index in part:
        if groups and _fitting(columns, rows, [*groups[-1], index], room):
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _fitting(
    columns: Sequence[Column], rows: Sequence[Row], group: Sequence[int], room: int
) -> list[int]:
    """Give the widths of columns with headings as long as can be; none: no room."""
    longest = max((len(columns[index].name) for index in group), default=0)
    for heading in range(max(longest, _NARROWEST), _NARROWEST - 1, -1):
        widths = [_width(columns[index], rows, index, heading) for index in group]
        if sum(widths) + 2 * len(widths) <= room:
            return widths
    return []


def _width(column: Column, rows: Sequence[Row], index: int, heading: int) -> int:
    lines = [line for row in rows for line in row.cells[index].splitlines()]
    return max(map(len, [*folded(column.name, heading), column.note, *lines]))


def _table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    group: Sequence[int],
    heading: str,
    room: int,
) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(heading, no_wrap=True)
    widths = _fitting(columns, rows, group, room) or [room - 2]
    for index, width in zip(group, widths, strict=True):
        column = columns[index]
        above = [*folded(column.name, width), *([column.note] if column.note else [])]
        # What is wider than the terminal by itself is folded there.
        table.add_column(
            Text("\n".join(above)),
            justify="right",
            min_width=width,
            max_width=width,
            overflow="fold",
        )
    for row in rows:
        cells = [row.cells[index] for index in group]
        if any(cells):
            table.add_row(*map(Text, (row.label, *cells)), style=row.style)
        if row.ends_section:
            table.add_section()
    return table
