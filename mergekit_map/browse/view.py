"""What the browser shows: a front with its order, limits and current point, as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.widgets import DataTable

from mergekit_map.config.problems import parse_select
from mergekit_map.errors import MapError
from mergekit_map.results.answer import answer, difference, gain_table, sample
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import errors_of_differences, gains
from mergekit_map.results.limits import Request, excess
from mergekit_map.results.paired import PairedMerges
from mergekit_map.results.selection import choose_point
from mergekit_map.surrogates.arrays import BoolArray

if TYPE_CHECKING:
    from mergekit_map.surrogates.fit import Surrogate

_NARROWEST = 8  # of a column; a list of more tasks than fit is scrolled
_COLOURS = {"better": "green", "worse": "red"}
_MARKS = {
    ">": "the chosen merge; its recipe is recipe.yml",
    "*": "measured, and no measured merge is better on every task",
    "!": "misses a limit",
    "?": "between points of the front; it gets a recipe when it is saved",
    "~": "before a number: predicted, not measured",
}


@dataclass(frozen=True, eq=False)
class View:
    """An immutable view of a front; each action returns a new one."""

    front: Front
    saved: int  # points that have a recipe; merges between points come after them
    at: int  # the current point
    order: tuple[int, ...]  # of the points in the list
    sorted_by: str | None = None  # a task; None: along the front
    choice: Mapping[str, Any] = field(default_factory=dict)  # the last limits
    missing: frozenset[int] = frozenset()  # points that miss a limit

    @classmethod
    def of(cls, front: Front) -> View:
        """Return the view of the chosen point, in the order along the front."""
        order, missing = _along(front), _missing(front)
        return cls(front, len(order), front.selected, order, missing=missing)

    @property
    def point(self) -> Merge:
        """Return the current point."""
        return self.front.points[self.at]

    @property
    def here(self) -> Front:
        """Return the front as if the current point were chosen, by its index."""
        index = {} if self.at == self.front.selected else {"index": self.at}
        select = self.front.select.model_copy(update=index)
        return self.front.model_copy(update={"selected": self.at, "select": select})

    @property
    def asked(self) -> Mapping[str, Any]:
        """Return the arguments that select the current point: a number or limits."""
        return {"index": self.at} if self.at < self.saved else self.choice

    def moved(self, index: int) -> View:
        """Return the view of another point."""
        return replace(self, at=index)

    def sorted(self, task: str | None) -> View:
        """Return the view with the best on a task first, or in order of the front."""
        along = _along(self.front)
        if task is None:
            return replace(self, order=along, sorted_by=None)
        metric, points = self.front.tasks[task].metric, self.front.points

        def utility(index: int) -> float:
            value = best_reading(points[index], task)[0].value
            return -np.inf if value is None else metric.utility(value)

        best = sorted(along, key=utility, reverse=True)
        return replace(self, order=tuple(best), sorted_by=task)

    def wished(
        self, choice: Mapping[str, Any], surrogates: Mapping[str, Surrogate]
    ) -> View:
        """Return the view of the point chosen by the arguments, if any.

        Raises:
            MapError: what is asked for does not go together, or there is no such point.
        """
        if not choice:
            return self.without_wish()
        select = parse_select(dict(choice))
        known = self.without_wish().front
        found = choose_point(known, select, surrogates)
        front = found.model_copy(update={"selected": known.selected})
        view = replace(
            self,
            front=front.model_copy(update={"select": known.select}),
            at=found.selected,
            choice=dict(choice),
            missing=_missing(found),
        )
        return view.sorted(self.sorted_by)

    def without_wish(self) -> View:
        """Return the view without limits and preferences."""
        selected = self.front.selected if self.front.selected < self.saved else 0
        kept = {"points": self.front.points[: self.saved], "selected": selected}
        front = self.front.model_copy(update=kept)
        view = View.of(front).moved(min(self.at, self.saved - 1))
        return replace(view, missing=frozenset())


def wish_of(front: Front) -> Mapping[str, str]:
    """Return the limits and preferences by which a front was chosen, as typed."""
    select, found = front.select, {"not_worse_than": ",".join(front.select.rivals)}
    named: Mapping[str, Any] = {"require": select.require, "prefer": select.prefer}
    for key, values in named.items():
        found[key] = ",".join(f"{task}={v}" for task, v in (values or {}).items())
    return found


def best_reading(merge: Merge, task: str) -> tuple[Reading, str]:
    """Return the best known estimate of a merge on a task, and its source."""
    if merge.is_measured(task):
        return merge.measured[task], "measured"
    return merge.readings("predicted").get(task, merge.measured[task]), "predicted"


def rivals(view: View) -> Sequence[tuple[str, Merge]]:
    """List the merges to compare with: the chosen point, base, parents and soup."""
    chosen = (f"point {view.front.selected}, chosen", view.front.chosen)
    anchors = [(anchor.label or "", anchor) for anchor in view.front.anchors]
    return anchors if view.front.selected == view.at else [chosen, *anchors]


def _along(front: Front) -> tuple[int, ...]:
    """Order the points from the worst to the best on the first task, as predicted."""
    first = front.utilities(front.points, "predicted")[:, 0]
    return tuple(np.argsort(first, kind="stable").tolist())


def _missing(front: Front) -> frozenset[int]:
    """Find the points that miss a limit by which the front was chosen."""
    try:
        request = Request.of(front)
        lower = request.lower_bounds(request.limits())
        Y = front.utilities(front.points, "predicted")
        short: BoolArray = np.any(lower > Y, axis=1)
        whole = [i for i, p in enumerate(front.points) if p.is_measured(*front.tasks)]
        if front.select.limited:
            short[whole] = (excess(front, np.array(whole, np.int_)) > 0).any(axis=1)
    except MapError:  # a limit of another version, or that cannot be computed
        return frozenset()
    return frozenset(np.flatnonzero(short).tolist())


class FrontList(DataTable[Text]):
    """The points in the order of a view, with the current one highlighted."""

    def show(self, view: View) -> None:
        """Lay out the list for the width."""
        self.clear(columns=True)
        tasks = list(view.front.tasks)
        labels = {index: _label(view, index) for index in view.order}
        first = max(map(len, labels.values()))
        width = self.size.width - first - 2 - 1  # padding, and the scroll bar
        each = max(_NARROWEST, width // len(tasks) - 2)
        self.header_height = 2
        self.add_column(Text(""), width=first)
        for number, task in enumerate(tasks, start=1):
            self.add_column(
                Text(f"{number}\N{NO-BREAK SPACE}{task}", overflow="fold"), width=each
            )
        for index in view.order:
            point = view.front.points[index]
            cells = [_cell(*best_reading(point, task)) for task in tasks]
            self.add_row(Text(labels[index]), *cells, key=str(index))
        self.move_cursor(row=view.order.index(view.at), animate=False)


def _label(view: View, index: int) -> str:
    marks = {
        ">": index == view.front.selected,
        "*": index in view.front.recommended,
        "!": index in view.missing,
        "?": index >= view.saved,
    }
    return f"{index} {''.join(mark for mark, holds in marks.items() if holds)}".rstrip()


def _cell(reading: Reading, source: str) -> Text:
    if reading.value is None:
        return Text("-", justify="right")
    mark, style = ("", "bold") if source == "measured" else ("~", "")
    return Text(f"{mark}{reading.value:.4g}", style, justify="right")


def weights_text(point: Merge) -> Text:
    """Return the weights of a point."""
    text = ", ".join(f"{name} {v:.3f}" for name, v in point.coefficients.items())
    return Text(text, "bold")


def gains_text(view: View) -> RenderableType:
    """Return the table of gains of the current point."""
    parts: list[RenderableType] = []
    found, number = gains(view.here), 0
    for task, name, *texts in gain_table(view.here, found):
        if task:
            number += 1
            grid = Table.grid(padding=(0, 1))
            parts += [Text(f"{number} {task}", "bold"), grid]
        cells = [Text(text, overflow="fold") for text in texts]
        for word, colour in _COLOURS.items():
            if f" {word} by " in texts[-1] and "," not in texts[-1]:
                cells[-1].stylize(colour)
        label = f"point {view.at}" if task else name
        grid.add_row(Text(label, overflow="fold"), *cells)
    return Group(*parts, Text(f"\n{sample(view.here, found)}", "dim"))


def answer_text(view: View) -> RenderableType:
    """Return what the numbers mean, as if the current point were the chosen one."""
    found, name = answer(view.here), f"point {view.at}"
    text = Text(f"Point {view.at}: {view.point.weights}\n\n")
    text.append(f"{found.headline}\n\n", "bold").append(f"{found.sample}\n")
    for sentence in (*found.findings, *found.details):
        if sentence != view.front.reason:  # of another point
            text.append(f"\n{sentence.replace('the chosen merge', name)}\n")
    return text


def compared_text(view: View, label: str, other: Merge) -> RenderableType:
    """Return the current point and another merge, side by side.

    A positive gain means that the point is better. The weights have their difference.
    """
    front, point, name = view.front, view.point, f"point {view.at}"
    weights = _table("weight", name, label, "difference")
    for key, a in point.coefficients.items():
        b = other.coefficients.get(key)
        cells = ("-", "-") if b is None else (f"{b:.3f}", f"{a - b:+.3f}")
        weights.add_row(key, f"{a:.3f}", *cells)
    tasks = _table("task", name, label, f"gain of {name}")
    errors = _errors(front, point, other)
    for (task, about), error in zip(front.tasks.items(), errors, strict=True):
        known = [best_reading(merge, task) for merge in (point, other)]
        values = [("" if s == "measured" else "~") + str(r) for r, s in known]
        (x, _), (y, _) = known
        gain = "-"
        if x.value is not None and y.value is not None:
            gain = difference(about.metric.sign * (x.value - y.value), error)
        tasks.add_row(f"{task} ({about.metric.better})", *values, gain)
    hint = "\nA positive gain is better. ~ predicted. On the documents of the search."
    return Group(weights, Text(), tasks, Text(hint, "dim"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _errors(front: Front, *merges: Merge) -> Iterator[float]:
    """Yield the standard error of a difference by task, paired where possible."""
    rows = [[i for i, m in enumerate(front.all_merges) if m is one] for one in merges]
    paired = PairedMerges.of(front, *map(np.array, rows)).stderr[0]
    for task, stderr in zip(front.tasks, map(float, paired), strict=True):
        alone = [
            errors_of_differences(front, merge, task).max()
            if merge.is_measured(task)
            else best_reading(merge, task)[0].stderr or math.nan
            for merge in merges
        ]
        yield stderr if all(m.is_measured(task) for m in merges) else math.hypot(*alone)


def help_text(keys: Iterable[tuple[str, str]]) -> RenderableType:
    """Return the help: keys with what they do, and the marks of the list."""
    table = Table.grid(padding=(0, 2))
    for key, about in (*keys, ("", ""), *_MARKS.items()):
        table.add_row(Text(key, "bold"), about)
    return table
