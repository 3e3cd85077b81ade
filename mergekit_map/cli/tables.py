"""Tables of the terminal: the front, the plan of ``inspect`` and its hours.

No number is cut or left out. A table that is too wide becomes several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mergekit_map.cli.gain_table import show_gains
from mergekit_map.cli.options import N_SHOWN
from mergekit_map.utils.text import folded

if TYPE_CHECKING:
    from pathlib import Path

    from mergekit_map.results.front import Front, Merge, Reading
    from mergekit_map.results.nested_order import Order


from typing import TYPE_CHECKING

from mergekit_map.utils.text import bytes_in_words

if TYPE_CHECKING:
    from mergekit_map.workflows.inspect import Plan


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mergekit_map.workflows.inspect import Plan, Probe


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
    """The heading of a column."""

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
    """Divide the columns of a part into tables, each as wide as possible."""
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
    """Return the column widths under the longest headings that fit; () if none do."""
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
    """Print the gains, points of a front, the anchors, fits and diagnostics.

    The points are the measured ones, the chosen one, and about n_points that cover the
    front. A star marks the recommended point.
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
    from mergekit_map.optimize.selection import spread

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
    """Return the table of a front; weights have their own where width is short."""
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
    """Print the gains of the chosen merge, as measured on its checkpoint."""
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


# Other devices by their names.
_WHERE = {"cpu": "host memory", "mapped": "mapped, free memory"}
_LIE = {"device": "on the device", "memory": "in memory", "mapped": "mapped"}


def show_needs(console: Console, plan: Plan) -> None:
    """Print the place of task vectors, the needed memory and disk, and shortages."""
    if plan.task_vectors is not None:
        where = f"{_LIE[plan.task_vectors]} ({plan.task_vectors_why})"
        console.print(Text(f"What merges are made of lies {where}."))
    table = new_table("", ["for", "where"], ["needs", "free now"])
    for need in (*plan.memory, *plan.disk):
        free = "-" if need.free is None else bytes_in_words(need.free)
        where = _WHERE.get(need.where, need.where)
        cells = (need.what, where, bytes_in_words(need.n_bytes), free)
        table.add_row(*map(Text, cells))
    console.print(table)
    for need in plan.shortages:
        free = "nothing" if need.free is None else bytes_in_words(need.free)
        text = (
            f"warning: {_WHERE.get(need.where, need.where)} has {free} free, and "
            f"{bytes_in_words(need.n_bytes)} are needed for {need.what}.\n"
        )
        console.print(Text(text, style="yellow"))


def show_probe(probe: Probe, plan: Plan) -> None:
    """Print the timings."""
    timed = {
        "opening the models": probe.load_seconds,
        "a merge": probe.merge_seconds,
        **probe.task_seconds,
    }
    steps = ", ".join(f"{what} {_time(seconds)}" for what, seconds in timed.items())
    hours = _time(3600 * probe.expected_hours)
    text = f"Probe at the soup: {steps}. The search will take about {hours}. It will "
    console = Console()
    console.print(Text(f"{text}measure it too: a probe is not logged.\n"))
    if plan.hours is not None and probe.merges is not None:
        console.print(Text(_what_the_budget_allows(probe, plan, probe.merges)))


def _what_the_budget_allows(probe: Probe, plan: Plan, merges: int) -> str:
    """Print how many merges the budget allows, and for which front they suffice."""
    if probe.budget_too_small:
        return (
            "warning: the budget is less than what the anchors, the first design and "
            "the end take, which are measured all the same, and hardly anything else.\n"
        )
    least, default = plan.safe, plan.default
    words = f"The budget allows about {merges} merges"
    if merges < least:
        return f"{words}: below {least} a front is a guess.\n"
    if merges < default:
        return (
            f"{words}: enough for a fit, and fewer than the {default} that a search "
            "without a budget may take; the verdicts say how well its front is known.\n"
        )
    return (
        f"{words}, where a search without a budget takes {default} at most; it stops "
        "before that when the front is known.\n"
    )


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.2g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
