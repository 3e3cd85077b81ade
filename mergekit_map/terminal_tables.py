"""Tables of a comparison on the terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table as Grid
from rich.text import Text

from mergekit_map.publish.tables import Table


def show_table(table: Table) -> None:
    """Print a table, its best cells bold, and what it says."""
    console, cells, best = Console(), table.text(), table.best()
    grid = Grid(box=SIMPLE_HEAD, padding=0)
    for index, column in enumerate(table.columns):
        # Headings are broken into lines, numbers are not.
        heading = Text(column.name.replace(" ", "\n"))
        justify: JustifyMethod = "right" if index else "left"
        grid.add_column(heading, justify=justify, no_wrap=True)
    for row, texts in enumerate(cells):
        styles = ["bold" if (row, i) in best else "" for i in range(len(texts))]
        grid.add_row(*map(Text, texts, styles))
    console.print(Text(table.title, style="bold"))
    console.print(grid)
    console.print(Text(f"{table.caption}\n"))
