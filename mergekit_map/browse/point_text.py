"""What is said of a point: weights, values, gains; and of two points side by side.

All of it fits any width: names are folded, and no number is cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.text import Text

from mergekit_map.browse.view import View, best_reading
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gained import Gained, Verdict, gains
from mergekit_map.words import folded

_STYLES: dict[Verdict, str] = {"better": "green", "worse": "red", "noise": ""}
_BETWEEN = "  "


def weights_text(merge: Merge, names: Sequence[str], width: int) -> Text:
    """Write the weights of a merge, as many in a line as there is room for."""
    values = [merge.coefficients.get(name) for name in names]
    written = ["-" if value is None else f"{value:.3f}" for value in values]
    longest = max(map(len, names))
    figures = max(map(len, written))
    label = max(1, min(longest, width - figures - 1))
    each = label + 1 + figures
    columns = max(1, (width + len(_BETWEEN)) // (each + len(_BETWEEN)))
    cells = []
    for name, value in zip(names, written, strict=True):
        *above, last = folded(name, label) or [""]
        cells.append([*above, f"{last:<{label}} {value:>{figures}}"])
    lines = []
    for start in range(0, len(cells), columns):
        row = cells[start : start + columns]
        height = max(map(len, row))
        filled = [["" for _ in range(height - len(cell))] + cell for cell in row]
        lines += [
            _BETWEEN.join(f"{part:<{each}}" for part in parts).rstrip()
            for parts in zip(*filled, strict=True)
        ]
    text = Text("\n".join(lines))
    text.highlight_regex(r"-?\d\.\d{3}", "bold")
    return text


def point_text(view: View, width: int) -> Text:
    """Say of each task what is known of the point, and what it gains."""
    front, found = view.here, gains(view.here)
    text = Text()
    for number, task in enumerate(front.tasks, start=1):
        text.append_text(_heading(front, task, number, width))
        text.append(f"  {_known(view.point, task, front.tasks[task].unit)}\n")
        pieces = [
            _ahead(rival.label, rival.tasks[task])
            for rival in found.rivals
            if task in rival.tasks
        ]
        if (kept := found.kept.get(task)) is not None and kept >= 0:
            pieces.append(Text(f"{100 * kept:.0f} % of the best parent's gain"))
        text.append_text(_filled(pieces, width))
    return text


def _filled(pieces: Sequence[Text], width: int) -> Text:
    """Put pieces into lines, none over two of them unless it is longer than one."""
    text, used = Text(), 0
    for place, piece in enumerate(pieces):
        rest = piece.copy().append("," if place < len(pieces) - 1 else "")
        if used and used + 1 + len(rest) <= width:
            text.append(" ")
        else:
            text.append("\n  " if used else "  ")
            used = 1
        text.append_text(rest)
        used += 1 + len(rest)
    return text.append("\n") if pieces else text


def _heading(front: Front, task: str, number: int, width: int) -> Text:
    lines = folded(f"{number} {task}", max(8, width - 2))
    text = Text("\n  ".join(lines), style="bold")
    better = f" ({front.tasks[task].metric.better} is better)"
    room = width - len(lines[-1]) - 2 >= len(better)
    text.append(better if room else f"\n {better}", style="not bold dim")
    return text.append("\n")


def _known(point: Merge, task: str, unit: str) -> str:
    reading, source = best_reading(point, task)
    said = [f"{reading} {unit}".rstrip() + f" {source}"]
    if source != "predicted":
        predicted = point.readings("predicted").get(task)
        if predicted is not None and predicted.value is not None:
            said.append(f"{predicted} predicted")
    return ", ".join(said)


def _ahead(label: str, gained: Gained) -> Text:
    error = "" if not gained.stderr else f"±{gained.stderr:.1g}"
    who = label if gained.other == label else f"{gained.other} ({label})"
    noise = " (noise)" if gained.verdict == "noise" else ""
    amount = (f"{gained.amount:+.4g}{error}", _STYLES[gained.verdict])
    return Text.assemble(amount, f" over {who}{noise}")


def beside_text(
    front: Front, one: tuple[str, Merge], other: tuple[str, Merge], width: int
) -> Text:
    """Write two merges side by side: weights, values, and how far they are apart."""
    rows = [("", [one[0], other[0], "first less second"])]
    rows += [("weights", [])]
    rows += [
        (name, _weights_apart(one[1], other[1], name)) for name in front.coefficients
    ]
    rows += [("", []), ("tasks", [])]
    rows += [
        (f"{task} ({front.tasks[task].metric.better})", cells)
        for task in front.tasks
        for cells in [_values_apart(front, one[1], other[1], task)]
    ]
    return Text("\n").join(_side_by_side(rows, width))


def _weights_apart(one: Merge, other: Merge, name: str) -> list[str]:
    a, b = one.coefficients.get(name), other.coefficients.get(name)
    written = ["-" if value is None else f"{value:.3f}" for value in (a, b)]
    return [*written, "-" if a is None or b is None else f"{a - b:+.3f}"]


def _values_apart(front: Front, one: Merge, other: Merge, task: str) -> list[str]:
    (a, source_a), (b, source_b) = best_reading(one, task), best_reading(other, task)
    cells = [_value(a, source_a), _value(b, source_b)]
    if a.value is None or b.value is None:
        return [*cells, "-"]
    error = _error(front, one, other, task, measured=source_a == source_b == "measured")
    written = "" if math.isnan(error) or not error else f"±{error:.1g}"
    return [*cells, f"{a.value - b.value:+.4g}{written}"]


def _value(reading: Reading, source: str) -> str:
    mark = "" if source == "measured" or reading.value is None else "~"
    return f"{mark}{reading}".replace(" ", "")


def _error(
    front: Front, one: Merge, other: Merge, task: str, *, measured: bool
) -> float:
    """Give the standard error of a difference: item by item where that is known."""
    known = front.differences.get(task)
    if measured and known is not None:
        places = [
            next(i for i, m in enumerate(front.known) if m is merge)
            for merge in (one, other)
        ]
        error = float(known.array(len(front.known))[places[0], places[1]])
        if not math.isnan(error):
            return error
    errors = [best_reading(merge, task)[0].stderr for merge in (one, other)]
    return math.hypot(*(math.nan if error is None else error for error in errors))


def _side_by_side(
    rows: Sequence[tuple[str, Sequence[str]]], width: int
) -> Iterator[Text]:
    """Lay out rows of a name and three cells; a name has lines of its own if long."""
    cells = [cell for _, cells in rows[1:] for cell in cells]
    column = max([*map(len, cells), 7])
    names = max(len(name) for name, _ in rows)
    names = max(8, min(names, width - 3 * (column + 2)))
    stacked = names + 3 * (column + 2) > width
    for name, values in rows:
        heads = [folded(value, column) or [""] for value in values]
        height = max(map(len, heads), default=1)
        label = folded(name, width if stacked else names) or [""]
        if stacked and values:
            yield from (Text(line) for line in label if line)
            label = [""]
        gap = "" if stacked else " " * names
        label = [""] * max(0, height - len(label)) + label
        lines = [[""] * (len(label) - len(h)) + h for h in heads]
        for place, part in enumerate(label):
            figures = "".join(f"  {line[place]:>{column}}" for line in lines)
            yield Text(f"{part:<{len(gap)}}{figures}".rstrip())
