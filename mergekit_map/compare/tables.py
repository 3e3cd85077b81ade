"""Tables of numbers as Markdown, to be read, and as CSV, to be computed with.

A cell is text, a number, a mean with its standard deviation, or None where there is
nothing to say. CSV has every number in full and the deviation in a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from mergekit_map.files import write_atomically


@dataclass(frozen=True)
class Spread:
    """A mean and a standard deviation."""

    mean: float
    std: float


Cell: TypeAlias = str | int | float | Spread | None


@dataclass(frozen=True)
class Column:
    """How the cells of a column are written in text."""

    name: str
    digits: int = 3  # behind the point
    percent: bool = False
    better: str = ""  # "higher" or "lower": the best cell stands out


@dataclass(frozen=True)
class Table:
    """A table with the name of its files; the first column says what a row is."""

    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    beyond: Sequence[int] = ()  # rows that compete for no best cell

    def text(self) -> list[list[str]]:
        """Write every cell as text, rows of columns."""
        return [
            [
                _text(cell, column)
                for cell, column in zip(row, self.columns, strict=True)
            ]
            for row in self.rows
        ]

    def best(self) -> set[tuple[int, int]]:
        """Find the best cells, as row and column; equal ones all are."""
        found = set()
        for index, column in enumerate(self.columns):
            values = {
                row: _number(cells[index])
                for row, cells in enumerate(self.rows)
                if row not in self.beyond and not math.isnan(_number(cells[index]))
            }
            if column.better and values:
                choose = max if column.better == "higher" else min
                top = choose(values.values())
                found |= {(row, index) for row, v in values.items() if v == top}
        return found


def write_table(table: Table, folder: Path) -> None:
    """Write ``name.md`` and ``name.csv``.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    write_atomically(folder / f"{table.name}.md", markdown(table))
    write_atomically(folder / f"{table.name}.csv", csv_text(table))


def markdown(table: Table) -> str:
    """Write a heading, the table with its best cells bold, and the caption."""
    best = table.best()
    header = [_escaped(column.name) for column in table.columns]
    rules = ["---", *("---:" for _ in table.columns[1:])]
    body = [
        [
            f"**{_escaped(cell)}**" if (row, column) in best else _escaped(cell)
            for column, cell in enumerate(cells)
        ]
        for row, cells in enumerate(table.text())
    ]
    lines = [f"| {' | '.join(cells)} |" for cells in (header, rules, *body)]
    return "\n".join([f"## {table.title}", "", *lines, "", table.caption, ""])


def csv_text(table: Table) -> str:
    """Write the numbers in full, a mean and its standard deviation side by side."""
    split = [
        any(isinstance(row[index], Spread) for row in table.rows)
        for index in range(len(table.columns))
    ]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header: list[str] = []
    for column, is_split in zip(table.columns, split, strict=True):
        header += [column.name, f"{column.name} std"] if is_split else [column.name]
    writer.writerow(header)
    for row in table.rows:
        writer.writerow(_plain_cells(row, split))
    return buffer.getvalue()


def _plain_cells(row: Sequence[Cell], split: Sequence[bool]) -> Iterator[object]:
    for cell, is_split in zip(row, split, strict=True):
        if isinstance(cell, Spread):
            yield from (_or_none(cell.mean), _or_none(cell.std))
        else:
            yield _or_none(cell)
            if is_split:
                yield None


def _or_none(cell: str | int | float | None) -> object:
    """Leave NaN out: CSV has no word for it."""
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def _number(cell: Cell) -> float:
    if isinstance(cell, Spread):
        return cell.mean
    return float(cell) if isinstance(cell, int | float) else math.nan


def _text(cell: Cell, column: Column) -> str:
    if isinstance(cell, str):
        return cell
    if cell is None or math.isnan(_number(cell)):
        return "-"
    if isinstance(cell, int):
        return str(cell)
    if isinstance(cell, float):
        return _digits(cell, column)
    return _digits(cell.mean, column, cell.std)


def _digits(value: float, column: Column, std: float | None = None) -> str:
    factor, unit = (100, " %") if column.percent else (1, "")
    spread = "" if std is None else f" ± {factor * std:.{column.digits}f}"
    return f"{factor * value:.{column.digits}f}{spread}{unit}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
