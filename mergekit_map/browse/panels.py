"""Texts of the screen: the front as a list, points, comparisons, items and keys.

All of them fit any width: names are folded, and no number is cut.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.browse.state import View, best_reading, rivals
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import Improvement, Verdict, gains
from mergekit_map.results.samples import ItemGain, ItemRecords
from mergekit_map.utils.text import folded, listed

_NARROWEST = 8  # of a column; a list of more tasks than fit is scrolled


class FrontList(DataTable[Text]):
    """The points in the order of a view, with the current one marked."""

    def show(self, view: View, heading: int) -> None:
        """Lay out the list for the width, with so many lines of headings."""
        self.clear(columns=True)
        tasks = list(view.front.tasks)
        labels = {index: _label(view, index) for index in view.order}
        first = max(map(len, labels.values()))
        width = self.size.width - first - 2 - 1  # padding, and the scroll bar
        each = max(_NARROWEST, width // len(tasks) - 2)
        headings = [
            _shortened(folded(f"{number} {task}", each), each, heading)
            for number, task in enumerate(tasks, start=1)
        ]
        self.header_height = max(map(len, headings))
        self.add_column(Text(""), width=first)
        for lines in headings:
            self.add_column(Text("\n".join(lines)), width=each)
        for index in view.order:
            cells = [_cell(view, index, task) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = {
        ">": index == view.front.selected,
        "*": index in view.front.recommended,
        "+": index == view.marked,
        "!": index in view.missing,
        "?": index >= view.saved,
    }
    there = "".join(mark for mark, holds in marks.items() if holds)
    return f"{index} {there}".rstrip()


def _cell(view: View, index: int, task: str) -> Text:
    reading, source = best_reading(view.front.points[index], task)
    if reading.value is None:
        return Text("-", justify="right")
    mark = "" if source == "measured" else "~"
    style = "bold" if source == "measured" else ""
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def _shortened(lines: list[str], width: int, most: int) -> list[str]:
    """Shorten a heading; the details of the point have the whole name."""
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: width - 1]}…"]


_KEYS = (
    *("↑↓ move", "1-9 sort", "l limits", "space mark", "c compare", "i items"),
    *("v meaning", "s save", "m merge", "t talk", "p push", "? all keys", "q quit"),
)


def keys_text(width: int) -> str:
    """Wrap the keys into lines; a key and its description stay in one."""
    lines = [""]
    for key in _KEYS:
        longer = f"{lines[-1]} · {key}" if lines[-1] else key
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(key)
    return "\n".join(lines)


_LIST = (
    "The list has a line for every point of the front. ~ before a number: predicted; "
    "without it the number was measured."
)
_MARKS = (
    (">", "the chosen point: its recipe is in recipe.yml"),
    ("*", "recommended: measured, and no measured merge is better on every task"),
    ("+", "marked, to compare with"),
    ("!", "does not keep the limits"),
    ("?", "wished for: it lies between points, and gets a recipe when it is saved"),
)
_PRESSED = (
    ("↑ ↓", "move along the front; page up, page down, home, end, too"),
    ("1 to 9", "sort by that task, the best first; once more, the best last"),
    ("0", "in the order of the front"),
    ("tab", "move between list and point, to scroll what is said of it"),
    (
        "l",
        "limits and preferences, in the words of select; the point that they choose is "
        "gone to, and nothing is written",
    ),
    ("x", "forget limits and preferences"),
    ("space", "mark a point"),
    ("c", "two points side by side; ← → for base, soup and models in place of one"),
    (
        "i",
        "items that got better or worse against a parent; ← → the next parent, tab the "
        "next task",
    ),
    ("v", "what the numbers mean"),
    ("s", "save: choose this point, as select does"),
    ("m", "merge it, as merge does"),
    ("t", "talk with the merge, in memory"),
    ("p", "push a merge to the Hub, as push does"),
    ("q", "quit"),
)
_GAINS = "Gains are larger where the point is better, whatever the task's direction."


def help_text(width: int) -> str:
    """Return the help: the list and its keys."""
    parts = [textwrap.fill(_LIST, width)]
    for pairs in (_MARKS, _PRESSED):
        keys = max(len(key) for key, _ in pairs) + 2
        lines = [
            textwrap.fill(
                about,
                width,
                initial_indent=key.ljust(keys),
                subsequent_indent=" " * keys,
            )
            for key, about in pairs
        ]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, textwrap.fill(_GAINS, width)])


_EXCERPT = 200  # letters of a document
_SHOWN = 50  # items that got better, and that got worse


def items_text(
    view: View,
    records: ItemRecords,
    task: str,
    rival: tuple[str, Merge],
    width: int,
) -> Text:
    """Return the items of a task that got better or worse than in another merge."""
    label, other = rival
    metric = view.front.tasks[task].metric
    text = Text(f"{task}, item by item: point {view.at} against {label}\n", "bold")
    items = records.compare(view.point, other, task, metric)
    if not items:
        return text.append(_why_not(view.front, view.at, task, rival))
    text.append(_counts(items))
    text.append(f"({metric.better} is better; + is what point {view.at} gained)\n\n")
    better = [item for item in items if item.ahead > 0]
    worse = [item for item in reversed(items) if item.ahead < 0]
    text.append_text(_table("better", "green", better, width))
    text.append_text(_table("worse", "red", worse, width))
    return text


def _table(heading: str, style: str, items: Sequence[ItemGain], width: int) -> Text:
    shown = items[:_SHOWN]
    more = f", the first {_SHOWN} of {len(items)}" if len(items) > _SHOWN else ""
    text = Text(f"{heading}{more}\n" if shown else "", "bold")
    names = max((len(item.name) for item in shown), default=0)
    if shown:
        figures = f"{'point':>9}  {'other':>9}  {'gain':>9}\n"
        text.append(f"{'':<{names}}  {figures}", "not bold dim")
    for item in shown:
        values = f"{item.value:>9.4g}  {item.other:>9.4g}  "
        text.append(f"{item.name:<{names}}  {values}", "not bold")
        text.append(f"{item.ahead:>+9.3g}\n", f"not bold {style}")
        if item.text:
            text.append(f"  {_excerpt(item.text, width)}\n", "not bold italic")
    return text.append("\n") if shown else text


def _counts(items: Sequence[ItemGain]) -> str:
    better = sum(item.ahead > 0 for item in items)
    worse = sum(item.ahead < 0 for item in items)
    alike = len(items) - better - worse
    mean = sum(item.ahead for item in items) / len(items)
    return (
        f"{better} better, {worse} worse, {alike} alike of {len(items)}; "
        f"{mean:+.3g} on average of the items\n"
    )


def _why_not(front: Front, at: int, task: str, rival: tuple[str, Merge]) -> str:
    label, other = rival
    measured = [i for i, p in enumerate(front.points) if p.is_measured(task)]
    if at not in measured:
        known = listed(map(str, measured)) if measured else "none"
        return (
            f"Nothing of single items is known of point {at}: it was not measured on "
            f"this task. Points that were: {known}. Merging a point measures it."
        )
    if not other.is_measured(task):
        return f"Nothing of single items is known of {label}: it was not measured."
    return (
        "The run folder has no records of single items of these two, or of another "
        "definition of the task."
    )


def _excerpt(text: str, width: int) -> str:
    line = " ".join(text.split())
    most = min(_EXCERPT, max(10, width - 4))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def rivals_of_items(view: View) -> Sequence[tuple[str, Merge]]:
    """List the merges to compare items with: the anchors, then a marked point."""
    found = rivals(view)
    points = [rival for rival in found if rival[0].startswith("point ")]
    return [*(rival for rival in found if rival not in points), *points]


_STYLES: dict[Verdict, str] = {"better": "green", "worse": "red", "noise": ""}
_BETWEEN = "  "


def weights_text(merge: Merge, names: Sequence[str], width: int) -> Text:
    """Return the weights of a merge, as many per line as fit."""
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
    """Return the values and gains of a point on each task."""
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
    """Wrap pieces into lines, none over two of them unless longer than one."""
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


def _ahead(label: str, gained: Improvement) -> Text:
    error = "" if not gained.stderr else f"±{gained.stderr:.1g}"
    who = label if gained.other == label else f"{gained.other} ({label})"
    noise = " (noise)" if gained.verdict == "noise" else ""
    amount = (f"{gained.amount:+.4g}{error}", _STYLES[gained.verdict])
    return Text.assemble(amount, f" over {who}{noise}")


def beside_text(
    front: Front, one: tuple[str, Merge], other: tuple[str, Merge], width: int
) -> Text:
    """Return two merges side by side: weights, values and differences."""
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
    """Return the standard error of a difference, paired by item where known."""
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
    """Lay out rows of a name and three cells; a long name has lines of its own."""
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
