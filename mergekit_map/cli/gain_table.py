"""The table of gains of the chosen merge, for terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from mergekit_map.results.front import Front, Reading
    from mergekit_map.results.gains import Gains, Improvement, Rival

_STYLES = {"better": "green", "worse": "red", "noise": "yellow"}
_CHOSEN, _KEPT = "chosen merge", "gain kept"
_NARROWEST = 12  # of a column of names, which may be folded


@dataclass(frozen=True)
class _Cell:
    """A cell: a name that may be folded, above numbers that may not."""

    numbers: tuple[Text, ...] = ()
    name: tuple[Text, ...] = ()

    @property
    def text(self) -> Text:
        return Text("\n").join([*self.name, *self.numbers])

    @property
    def needed(self) -> int:
        return max((line.cell_len for line in self.numbers), default=0)

    @property
    def wanted(self) -> int:
        return max(line.cell_len for line in (*self.name, *self.numbers))


def show_gains(front: Front, console: Console) -> None:
    """Print the chosen merge beside base, soup and best parents, with its gains.

    Tasks on which the base is better and missed limits come first, then the results on
    held-out documents.
    """
    # Here, as the numbers are not needed for help.
    from mergekit_map.results.gain_sentences import (
        confirmed_in_words,
        gains_in_words,
        worse_than_base,
    )
    from mergekit_map.results.gains import gains
    from mergekit_map.results.narrative import missed_as_measured

    found = gains(front)
    worse = worse_than_base(front, found)
    for sentence in (*worse, *missed_as_measured(front)):
        console.print(Text(sentence, style="bold red"))
    if found.rivals:
        console.print(Text(f"What the chosen merge gains, point {front.selected}"))
        console.print(gain_table(front, found, console.width))
        console.print(Text(_legend(found), style="dim"))
        console.print()
    others = gains_in_words(front, found)[len(worse) :]
    for sentence in (*others, *confirmed_in_words(front)):
        console.print(Text(sentence, style="bold"))


def gain_table(front: Front, found: Gains, width: int) -> Table | Group:
    """Lay the table out for a terminal of a width.

    A row is a merge and a column a task, or the other way round where that is too wide.
    Where both are too wide, each task has a table.
    """
    tasks = [_heading(front, task) for task in front.tasks]
    labels = [_Cell(name=(Text(label),)) for label in _labels(found)]
    columns = [_column(found, task) for task in front.tasks]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return (
        _grid(tasks, labels, rows, width)
        or _grid(labels, tasks, columns, width)
        or _one_after_another(tasks, labels, columns, width)
    )


def _labels(found: Gains) -> list[str]:
    names = {"soup": "uniform soup"}
    return [_CHOSEN, *(names.get(r.label, r.label) for r in found.rivals), _KEPT]


def _legend(found: Gains) -> str:
    text = (
        "+ is how far the chosen merge is ahead, ± one standard error of that; "
        "gain kept is of the best parent's gain over the base"
    )
    unmeasured = {source for source in found.sources.values() if source != "measured"}
    if unmeasured:
        text += f"; {' or '.join(sorted(unmeasured))}: not measured there yet"
    return f"{text}."


def _heading(front: Front, task: str) -> _Cell:
    words = front.tasks[task].facts
    return _Cell(name=(Text(task, style="bold"), Text(", ".join(words), style="dim")))


def _column(found: Gains, task: str) -> list[_Cell]:
    """Return the cells of a task: the chosen merge, each rival, the share kept."""
    # Here, as the numbers are not needed for help.
    from mergekit_map.results.gain_sentences import share_in_words

    own, source = found.readings[task], found.sources[task]
    known = source == "measured" or own.value is None
    how = () if known else (Text(source, style="yellow"),)
    rivals = [_rival(rival, task) for rival in found.rivals]
    share = Text(share_in_words(found.kept[task]))
    return [_Cell((*_value(own), *how)), *rivals, _Cell((share,))]


def _rival(rival: Rival, task: str) -> _Cell:
    gained = rival.tasks.get(task)
    if gained is None:
        return _Cell((Text("-"),))
    name = (Text(gained.other),) if gained.other != rival.label else ()
    return _Cell((*_value(gained.reading), _amount(gained)), name)


def _value(reading: Reading) -> tuple[Text, ...]:
    value, _, documents = str(reading).partition(" (")
    return tuple(Text(part) for part in (value, documents.rstrip(")")) if part)


def _amount(gained: Improvement) -> Text:
    from mergekit_map.results.gain_sentences import amount_in_words

    text = f"{amount_in_words(gained)} {gained.verdict}"
    return Text(text, style=_STYLES[gained.verdict])


def _grid(
    heads: Sequence[_Cell],
    names: Sequence[_Cell],
    rows: Sequence[Sequence[_Cell]],
    width: int,
) -> Table | None:
    """Return rows of cells with names; None where their numbers are too wide.

    Headings and names are folded as far as needed.
    """
    columns = list(zip(*rows, strict=True))
    needed = [max(cell.needed for cell in column) for column in columns]
    first = max(_NARROWEST, *(min(name.wanted, 2 * _NARROWEST) for name in names))
    spare = width - first - 4 - sum(size + 2 for size in needed)
    if spare < 0:
        return None
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("", width=first, overflow="fold")
    for head, column, size in zip(heads, columns, needed, strict=True):
        wanted = max(cell.wanted for cell in (head, *column))
        wide = min(wanted, size + spare // len(columns))
        table.add_column(head.text, width=wide, justify="right", overflow="fold")
    for name, row in zip(names, rows, strict=True):
        table.add_row(name.text, *(cell.text for cell in row))
    return table


def _one_after_another(
    tasks: Sequence[_Cell],
    labels: Sequence[_Cell],
    columns: Sequence[Sequence[_Cell]],
    width: int,
) -> Group:
    lines = [_in_line(cell) for column in columns for cell in column]
    needed = [max(text.cell_len for text in part) for part in zip(*lines, strict=True)]
    found = (zip(labels, column, strict=True) for column in columns)
    wanted = max(_label(*pair).cell_len for pairs in found for pair in pairs)
    first = max(_NARROWEST, min(wanted, width - sum(needed) - 4))
    parts: list[Text | Table] = []
    for task, column in zip(tasks, columns, strict=True):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=first, overflow="fold")
        for size in needed:
            table.add_column(width=size, justify="right", no_wrap=True)
        for label, cell in zip(labels, column, strict=True):
            table.add_row(_label(label, cell), *_in_line(cell))
        parts += [*task.name, table, Text()]
    return Group(*parts)


def _label(label: _Cell, cell: _Cell) -> Text:
    return Text.assemble("  ", *label.name, *(f", {name}" for name in cell.name))


def _in_line(cell: _Cell) -> tuple[Text, Text]:
    """Return the value and the words on it."""
    value, *about = cell.numbers
    return value, Text(" ").join(about)
