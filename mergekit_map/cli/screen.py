"""The answer of a search on the terminal, with the commands that come next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mergekit_map.types import SOUP

if TYPE_CHECKING:
    from mergekit_map.results.answer import Answer, GainTable
    from mergekit_map.results.front import Front, Merge

_N_POINTS = 10  # of the front, with --verbose
_STYLES = {"better": "green", "worse": "red", "no significant difference": "yellow"}
_TEXTS = 2  # the first columns of the table of gains: task and model
_NARROW = 100  # columns of a terminal on which names of models are folded
_NAME = 20  # letters of a name that stay on one line there


def show_answer(front: Front, *, verbose: bool = False) -> Answer:
    """Print the answer of a front; with ``verbose`` also its details and points."""
    # Here, as the numbers are not needed for help.
    from mergekit_map.results.answer import answer

    console, found = Console(), answer(front)
    console.print(Text(found.headline, style="bold"))
    console.print(_gain_table(found.table, console.width))
    console.print(Text(found.sample, style="dim"))
    for finding in found.findings:
        console.print(_item(finding))
    if verbose:
        console.print()
        for detail in found.details:
            console.print(_item(detail))
        console.print(_front_table(front))
    return found


def _item(sentence: str) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row("-", Text(sentence))
    return table


def _gain_table(gains: GainTable, width: int) -> Table:
    """Lay out the table for a terminal of a width; names are folded."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, heading in enumerate(gains.headings):
        texts = index < _TEXTS
        name = _NAME if texts and width < _NARROW else None
        verdict = not heading
        table.add_column(
            heading,
            justify="left" if texts or verdict else "right",
            max_width=name,
            overflow="fold",
        )
    for row in gains.rows:
        cells = [Text(cell, style=_STYLES.get(cell, "")) for cell in row]
        table.add_row(*cells, style="bold" if row[0] else "")
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


def _front_table(front: Front) -> Table:
    """Show the reference points, points that cover the front, and all measured ones."""
    from mergekit_map.optimize.selection import spread

    predicted = front.utilities(front.points, "predicted")
    shown = {front.selected, *map(int, spread(predicted, _N_POINTS))}
    shown |= {
        index
        for index, point in enumerate(front.points)
        if any(map(point.is_measured, front.tasks))
    }
    title = f"{len(shown)} of {len(front.points)} points (all are in front.csv)"
    table = new_table(title, ["point", "weights", "measured, or ~ predicted"])
    for anchor in front.anchors:
        table.add_row(*_cells(front, anchor, anchor.label or ""))
    for index in sorted(shown):
        chosen = index == front.selected
        name = f"{index}, chosen" if chosen else str(index)
        style = "bold" if chosen else ""
        table.add_row(*_cells(front, front.points[index], name), style=style)
    return table


def _cells(front: Front, merge: Merge, name: str) -> Iterator[Text]:
    predicted = merge.readings("predicted")
    values = [
        f"{task} {merge.measured[task]}"
        if merge.is_measured(task)
        else f"{task} ~{predicted[task]}"
        for task in front.tasks
    ]
    yield from map(Text, (name, merge.weights, ", ".join(values)))


def show_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Print commands to copy, each after what it is for."""
    console = Console()
    console.print("\nNext:")
    for purpose, command in steps:
        # A command is never folded, which would break it.
        console.print(Text(f"  {purpose:<15} {command}"), soft_wrap=True)


def after_search(run: Path, found: Answer) -> list[tuple[str, str]]:
    """Return the steps after a search or a choice: merge, look, choose again."""
    return [
        _merging(run, found),
        ("see the front", _typed("report", run)),
        ("choose another", _typed("browse", run)),
    ]


def after_merge(run: Path, out: Path, found: Answer) -> list[tuple[str, str]]:
    """Return the steps after a merge: look, choose again, publish."""
    last = ("publish it", _typed("push", out, "YOU/NAME"))
    if found.advice == SOUP:
        last = _merging(run, found)
    return [
        ("see the front", _typed("report", run)),
        ("choose another", _typed("browse", run)),
        last,
    ]


def _merging(run: Path, found: Answer) -> tuple[str, str]:
    if found.advice == SOUP:
        recipe = run / "recipes" / "soup.yml"
        return "merge the soup", shlex.join(["mergekit-yaml", str(recipe), "OUT"])
    return "merge it", _typed("merge", run, "OUT")


def _typed(command: str, folder: Path, *words: str) -> str:
    return shlex.join(["mergekit-map", command, str(folder), *words])
