"""Tables of numbers, as Markdown for reading and as CSV for computing.

A cell is text, a number, a mean with its standard deviation, or None for an empty cell.
CSV has every number in full and the deviation in a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from mergekit_map.utils.files import write_atomically


@dataclass(frozen=True)
class Spread:
    """A mean and a standard deviation."""

    mean: float
    std: float


Cell: TypeAlias = str | int | float | Spread | None


@dataclass(frozen=True)
class Column:
    """The text format of a column's cells."""

    name: str
    digits: int = 3  # behind the point
    percent: bool = False
    bold_best: bool = False  # whether the highest cell stands out


@dataclass(frozen=True)
class Table:
    """A table with the name of its files; the first column labels the rows."""

    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    beyond: Sequence[int] = ()  # rows that compete for no best cell

    def text(self) -> list[list[str]]:
        """Return the text of every cell, as rows of columns."""
        return [list(map(_text, row, self.columns)) for row in self.rows]

    def is_best(self, row: int, column: int) -> bool:
        """Whether a cell stands out as the best of its column; equal ones all do."""
        if not self.columns[column].bold_best or row in self.beyond:
            return False
        number = _number(self.rows[row][column])
        rivals = (r for i, r in enumerate(self.rows) if i not in self.beyond)
        # An empty cell is NaN, which is larger than nothing.
        larger = any(_number(cells[column]) > number for cells in rivals)
        return not larger and not math.isnan(number)


def write_table(table: Table, folder: Path) -> None:
    """Write ``name.md`` and ``name.csv``."""
    write_atomically(folder / f"{table.name}.md", markdown(table))
    write_atomically(folder / f"{table.name}.csv", csv_text(table))


def markdown(table: Table) -> str:
    """Write a heading, the table with its best cells bold, and the caption."""
    header = [_escaped(column.name) for column in table.columns]
    rules = ["---", *("---:" for _ in table.columns[1:])]
    body = [
        [
            f"**{_escaped(cell)}**" if table.is_best(row, column) else _escaped(cell)
            for column, cell in enumerate(cells)
        ]
        for row, cells in enumerate(table.text())
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (header, rules, *body)]
    return "\n".join([f"## {table.title}", "", *lines, "", table.caption, ""])


def csv_text(table: Table) -> str:
    """Write the numbers in full, a mean and its standard deviation side by side."""
    columns: list[list[object]] = []
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        means = (c.mean if isinstance(c, Spread) else c for c in cells)
        columns.append([column.name, *map(_or_none, means)])
        if any(isinstance(cell, Spread) for cell in cells):
            stds = (c.std if isinstance(c, Spread) else None for c in cells)
            columns.append([f"{column.name} std", *map(_or_none, stds)])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _or_none(cell: str | float | None) -> object:
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def _number(cell: Cell) -> float:
    if isinstance(cell, Spread):
        return cell.mean
    return float(cell) if isinstance(cell, int | float) else math.nan


def _text(cell: Cell, column: Column) -> str:
    if isinstance(cell, str):
        return cell
    if math.isnan(_number(cell)):
        return "-"
    if isinstance(cell, int):
        return str(cell)
    factor, unit = (100, " %") if column.percent else (1, "")
    digits = f".{column.digits}f"
    std = f" ± {factor * cell.std:{digits}}" if isinstance(cell, Spread) else ""
    return f"{factor * _number(cell):{digits}}{std}{unit}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
