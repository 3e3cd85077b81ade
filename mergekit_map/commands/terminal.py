"""What the command line shows in the end: the front as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mergekit_map.commands.gain_table import show_gains
from mergekit_map.commands.options import N_SHOWN
from mergekit_map.commands.wide_table import Column, Row, wide_tables

if TYPE_CHECKING:
    from pathlib import Path

    from mergekit_map.results.front import Front, Merge, Reading
    from mergekit_map.results.merge_order import Order


def new_table(
    title: str = "", texts: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Table:
    """Make a table with columns of texts, then of numbers, by their headings."""
    table = Table(
        title=title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def show_front(front: Front, n_points: int = N_SHOWN) -> None:
    """Print what is gained, then points of a front, the anchors, fits and verdicts.

    Shown is what was measured, what was chosen, and about n_points that show the whole.
    A point that is recommended has a star.
    """
    console = Console()
    show_gains(front, console)
    console.print()
    shown = _shown_points(front, n_points)
    console.print(Text(_title(front, shown)))
    for table in _tables(front, shown, console.width):
        console.print(table)
    if count := sum(_is_of_subset(merge) for merge in front.merges):
        console.print(Text(_on_subset(count)))
    if front.order is not None:
        console.print(Text(f"Merged in pairs: {_pairs(front.order)}"))
    for task, about in front.tasks.items():
        fit = about.fit
        console.print(
            Text(
                f"{task}: {fit.kind}, R² {_number(fit.r2)} on {fit.n} fitted merges, "
                f"{_number(fit.loo_r2)} left out one by one"
            )
        )
    console.print()
    for sentence in front.verdicts:
        console.print(Text(sentence))


def _is_of_subset(merge: Merge) -> bool:
    return any(reading.documents is not None for reading in merge.measured.values())


def _on_subset(count: int) -> str:
    merges = "1 merge was" if count == 1 else f"{count} merges were"
    return (
        f"{merges} measured on some of the documents, which the fits know with the "
        "error of that; points and anchors were measured on all"
    )


def _title(front: Front, shown: Sequence[int]) -> str:
    lines = [
        f"Anchors, and {len(shown)} of the front's {len(front.points)} points",
        "A row is what is predicted, 'measured' below it what was measured there",
    ]
    if front.recommended:
        lines.append(
            "* recommended: measured, no measured merge is better on every task"
        )
    return "\n".join(lines)


def _shown_points(front: Front, n_points: int) -> list[int]:
    """List points that show a whole front, and all that were measured or chosen."""
    # Here, as the numbers are not needed for help.
    from mergekit_map.search.selection import spread

    predicted = front.utilities(front.points, "predicted")
    shown = {int(index) for index in spread(predicted, n_points)}
    measured = (
        index
        for index, point in enumerate(front.points)
        if any(point.is_measured(task) for task in front.tasks)
    )
    return sorted({front.selected, *shown, *measured})


def _pairs(order: Order) -> str:
    if isinstance(order, str):
        return order
    sides = [_pairs(side) for side in order]
    return " + ".join(f"({s})" if " + " in s else s for s in sides)


def _tables(front: Front, shown: Sequence[int], width: int) -> Iterator[Table]:
    """Make the table of a front; weights have one of their own where room is short."""
    weights = [Column(name) for name in front.coefficients]
    tasks = [Column(t, f"({metric.better})") for t, metric in front.metrics.items()]
    anchors = [_rows(front, anchor, anchor.label or "") for anchor in front.anchors]
    rows = [row for part in anchors for row in part]
    if rows:
        rows[-1] = replace(rows[-1], ends_section=True)
    for index in shown:
        chosen = index == front.selected
        label = f"{index} chosen" if chosen else f"{index}"
        label += " *" if index in front.recommended else ""
        rows += _rows(front, front.points[index], label, "bold" if chosen else "")
    return wide_tables([weights, tasks], rows, "merge", width)


def _rows(front: Front, merge: Merge, label: str, style: str = "") -> list[Row]:
    values = [merge.coefficients.get(name) for name in front.coefficients]
    weights = ["-" if value is None else f"{value:.3f}" for value in values]
    readings = merge.readings("predicted")
    predicted = [_number(readings[task].value) for task in front.tasks]
    rows = [Row(label, [*weights, *predicted], style)]
    empty = [""] * len(weights)
    if any(merge.is_measured(task) for task in front.tasks):
        measured = [_reading(merge.measured[task]) for task in front.tasks]
        rows.append(Row("  measured", [*empty, *measured], style))
    return rows


def show_merged(front: Front, out: Path) -> None:
    """Print what the chosen merge gains, as it was measured on its checkpoint."""
    console = Console()
    text = f"{out} holds point {front.selected} of the front: {front.chosen.weights}"
    console.print(Text(text))
    console.print()
    show_gains(front, console)
    for task in front.tasks:
        predicted = front.chosen.readings("predicted")[task]
        measured = front.chosen.measured[task]
        console.print(Text(f"{task}: predicted {predicted}, measured {measured}"))


def _reading(reading: Reading) -> str:
    return str(reading).replace(" ", "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
