"""What is said of items: which got better or worse from another merge to a point."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from mergekit_map.browse.view import View, rivals
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.item_gains import ItemGain, ItemRecords
from mergekit_map.words import listed

_EXCERPT = 200  # letters of a document
_SHOWN = 50  # items that got better, and that got worse


def items_text(
    view: View,
    records: ItemRecords,
    task: str,
    rival: tuple[str, Merge],
    width: int,
) -> Text:
    """Write what every item of a task gained or lost against another merge."""
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
    """List what items can be held against: the anchors first, then a marked point."""
    found = rivals(view)
    points = [rival for rival in found if rival[0].startswith("point ")]
    return [*(rival for rival in found if rival not in points), *points]
