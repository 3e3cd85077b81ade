"""The paper's tables of a comparison, as Markdown for reading and CSV for computing.

A cell is text, a number, a mean with its standard deviation, or None for an empty cell.
CSV has every number in full and the deviation in a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mergekit_map.compare.contest import DIRECT, OURS
from mergekit_map.compare.indicators import Comparison, Spread, mean_and_std
from mergekit_map.utils.files import plain

Cell: TypeAlias = str | int | float | Spread | None


@dataclass(frozen=True)
class Column:
    """The text format of a column's cells."""

    name: str
    digits: int = 3  # behind the point
    percent: bool = False


@dataclass(frozen=True)
class Table:
    """A table with the name of its files; the first column labels the rows."""

    name: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> list[list[str]]:
        """Return the text of every cell, as rows of columns."""
        return [list(map(_text, row, self.columns)) for row in self.rows]


def markdown(table: Table) -> str:
    """Write a heading, the table and the caption."""
    header = [column.name for column in table.columns]
    rows = (header, ["---", *("---:" for _ in table.columns[1:])], *table.text())
    escaped = [[cell.replace("|", "\\|") for cell in cells] for cells in rows]
    lines = [f"| {' | '.join(cells)} |" for cells in escaped]
    return "\n".join([f"## {table.title}", "", *lines, "", table.caption, ""])


def csv_text(table: Table) -> str:
    """Write the numbers in full, a mean and its standard deviation side by side."""
    columns: list[list[object]] = []
    for column, *cells in zip(table.columns, *table.rows, strict=True):
        means = (c.mean if isinstance(c, Spread) else c for c in cells)
        columns.append([column.name, *map(plain, means)])
        if any(isinstance(cell, Spread) for cell in cells):
            stds = (c.std if isinstance(c, Spread) else None for c in cells)
            columns.append([f"{column.name} std", *map(plain, stds)])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def _text(cell: Cell, column: Column) -> str:
    if isinstance(cell, str):
        return cell
    number = cell.mean if isinstance(cell, Spread) else cell
    if number is None or math.isnan(number):
        return "-"
    if isinstance(cell, int):
        return str(cell)
    factor, unit = (100, " %") if column.percent else (1, "")
    digits = f".{column.digits}f"
    std = f" ± {factor * cell.std:{digits}}" if isinstance(cell, Spread) else ""
    return f"{factor * number:{digits}}{std}{unit}"


def comparison_tables(comparison: Comparison) -> list[Table]:
    """Make all tables of a comparison."""
    return [make(comparison) for make in (win_rate_table, methods_table, fronts_table)]


def win_rate_table(comparison: Comparison) -> Table:
    """Compare each run with direct search, as tables 2 and 3 of the paper do."""
    rows: list[list[Cell]] = []
    for run in comparison.runs:
        direct = run.fronts[DIRECT]
        r2 = [value for value in run.r2.values() if not math.isnan(value)]
        sizes = [run.models, len(run.tasks)]
        merges = [direct.evaluations, run.fronts[OURS].evaluations]
        wins = [direct.win_rate, direct.win_rate_paid]
        rows.append([run.name, *sizes, *merges, *wins, mean_and_std(r2)])
    return Table(
        name="win_rate",
        title="Win rate over direct search",
        caption=(
            "Win rate: how often a point of the front of MAP is better than one of the "
            "direct search (random merges, those that no other dominates), over all "
            "pairs of points and all tasks, as measured; 50 % is a tie. Measuring the "
            "front of MAP to judge it is free, as in the paper; *as paid* is the front "
            "of what the search itself fitted. R²: the surrogates on the merges of "
            "the direct search; ± over the tasks."
        ),
        columns=[
            *map(Column, ("search", "models", "tasks", "merges, direct search")),
            Column("merges, MAP"),
            Column("win rate", digits=1, percent=True),
            Column("win rate, as paid", digits=1, percent=True),
            Column("R²"),
        ],
        rows=rows,
    )


def methods_table(comparison: Comparison) -> Table:
    """Compare all methods by preference, as table 4 of the paper does."""
    runs = comparison.runs
    methods = list(dict.fromkeys(name for run in runs for name in run.methods))
    methods = [name for name in methods if name != OURS] + [OURS]
    rows: list[list[Cell]] = [
        [name, *(mean_and_std(run.methods.get(name, ())) for run in runs)]
        for name in methods
    ]
    percent = comparison.unit == "percent"
    unit = (
        "The metrics are scores between 0 and 1, taken as they are."
        if percent
        else "1 is the best and 0 the worst value of a task on the front of all that "
        "was measured of this merge; other merges may lie outside."
    )
    return Table(
        name="methods",
        title="Preference-weighted sums, higher is better",
        caption=(
            f"Mean ± standard deviation over {comparison.preferences} random "
            f"preferences that add up to 1. {unit} MAP gives each preference the point "
            "of its front with the best predicted sum, and what counts is what was "
            "measured there. *As paid* and the other searches give it the best merge "
            "that they measured. Single task models: every task by the fine-tuned "
            "model that is best at it, which no one checkpoint is. The parameters of "
            "the other baselines are in docs/comparing.md."
        ),
        columns=[
            Column("method"),
            *(
                Column(f"{run.name} ({run.models} models)", 3 - percent, percent)
                for run in runs
            ),
        ],
        rows=rows,
    )


def fronts_table(comparison: Comparison) -> Table:
    """Compare the fronts of all searches with a reference."""
    return Table(
        name="fronts",
        title="Fronts",
        caption=(
            "As measured, tasks scaled by ideal and nadir of the reference (constant "
            "ones by the range of all): the merges that no other dominates, of all "
            "that any search measured of this merge. "
            "HV: share of the reference's hypervolume. GD, IGD: generational distance "
            "to the reference and its inverse, p = 2 as in the paper's appendix. MAP "
            "wins: its win rate over the method."
        ),
        columns=[
            *map(Column, ("search", "method", "merges", "points", "HV", "GD", "IGD")),
            Column("MAP wins", digits=1, percent=True),
            Column("MAP wins, as paid", digits=1, percent=True),
        ],
        rows=[
            [run.name, method, *vars(scores).values()]  # in the order of the columns
            for run in comparison.runs
            for method, scores in run.fronts.items()
        ],
    )
