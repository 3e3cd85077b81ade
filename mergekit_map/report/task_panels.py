"""Which tasks a picture shows where they are many, and a table of the others."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from mergekit_map.report.pictures import ANCHOR
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import best_single, labelled
from mergekit_map.utils.text import cut_short

MOST_DRAWN = 6  # whose pairs make a picture of 5 by 5


_MOST_ROWS = 40  # of the table


_LONGEST = 36  # letters of a name in it


_HEADINGS = ("task", "base", "best model", "chosen")


_PLACES = (0.0, 0.46, 0.64, 0.82)


def drawn_tasks(front: Front, most: int = MOST_DRAWN) -> list[str]:
    """List the tasks that are drawn: those that the choice names, then the first."""
    asked = {**(front.select.prefer or {}), **(front.select.require or {})}
    named = [task for task in front.tasks if task in asked]
    drawn = list(dict.fromkeys([*named, *front.tasks]))[:most]
    return [task for task in front.tasks if task in drawn]


def draw_others(axes: Axes, front: Front, drawn: Sequence[str]) -> None:
    """Write a table of the tasks that are not drawn."""
    others = [task for task in front.tasks if task not in drawn]
    shown = others[:_MOST_ROWS]
    rows = [_HEADINGS, *(_row(front, task) for task in shown)]
    more = len(others) - len(shown)
    title = f"{len(drawn)} of {len(front.tasks)} tasks are drawn; the others:"
    axes.set_axis_off()
    _write(axes, 0, 0.0, title)
    for line, row in enumerate(rows, start=1):
        for place, cell in zip(_PLACES, row, strict=True):
            _write(axes, line, place, cell)
    _write(axes, len(rows) + 1, 0.0, f"and {more} more, in front.csv" if more else "")


def _write(axes: Axes, line: int, place: float, text: str) -> None:
    axes.text(
        place,
        1 - line / (_MOST_ROWS + 3),
        text,
        transform=axes.transAxes,
        va="top",
        fontsize=9,
        color=ANCHOR,
        parse_math=False,
        in_layout=False,
    )


def _row(front: Front, task: str) -> tuple[str, ...]:
    chosen = front.chosen
    known = chosen.measured[task]
    if known.value is None:
        known = chosen.readings("predicted")[task]
    rivals = (labelled(front, "base"), best_single(front, task))
    return (
        cut_short(task, _LONGEST),
        *(_reading(merge, task) for merge in rivals),
        str(known),
    )


def _reading(merge: Merge | None, task: str) -> str:
    return str(Reading.of(None, None) if merge is None else merge.measured[task])
