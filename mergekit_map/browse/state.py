"""The state of the browser: a front, its order, limits, and the current point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mergekit_map.config.problems import parse_select
from mergekit_map.config.schema import SelectSpec
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.gains import anchor_values
from mergekit_map.results.limits import find_limits, lower_limits
from mergekit_map.results.selection import choose_point

if TYPE_CHECKING:
    from mergekit_map.results.surrogate_file import Surrogates


@dataclass(frozen=True, eq=False)
class View:
    """An immutable view of a front; each action returns a new one."""

    front: Front
    saved: int  # points that have a recipe; what was wished for comes after them
    at: int  # the point one is at
    order: tuple[int, ...]  # of the points, as shown
    sorted_by: tuple[str, bool] | None = None  # task, and whether the best is last
    marked: int | None = None  # a point to compare with
    choice: Mapping[str, Any] = field(default_factory=dict)  # what was asked for last
    missing: frozenset[int] = frozenset()  # points that do not keep the limits

    @classmethod
    def of(cls, front: Front) -> View:
        """Return the view of the chosen point of a front, in the front's own order."""
        count = len(front.points)
        return cls(front, count, front.selected, tuple(range(count)))

    @property
    def point(self) -> Merge:
        """Return the current point."""
        return self.front.points[self.at]

    @property
    def here(self) -> Front:
        """Return the front as if the current point were the chosen one."""
        return self.front.model_copy(update={"selected": self.at})

    @property
    def asked(self) -> Mapping[str, Any]:
        """Return the arguments that select the current point: a number or a choice."""
        return {"index": self.at} if self.at < self.saved else self.choice

    def moved(self, index: int) -> View:
        """Return the view of another point."""
        return replace(self, at=index)

    def with_mark(self) -> View:
        """Return the view with the current point marked, or without the mark."""
        return replace(self, marked=None if self.marked == self.at else self.at)

    def sorted(self, task: str | None) -> View:
        """Return the view sorted by a task; again reverses it; None: as found."""
        if task is None:
            order = tuple(range(len(self.front.points)))
            return replace(self, order=order, sorted_by=None)
        reverse = self.sorted_by == (task, False)
        metric, points = self.front.tasks[task].metric, self.front.points

        def utility(index: int) -> float:
            value = best_reading(points[index], task)[0].value
            return -np.inf if value is None else metric.utility(value)

        best = sorted(self.order, key=utility, reverse=not reverse)
        return replace(self, order=tuple(best), sorted_by=(task, reverse))

    def wished(self, choice: Mapping[str, Any], surrogates: Surrogates | None) -> View:
        """Return the view of the point chosen by the arguments; nothing is written.

        Raises:
            MapError: what is asked for does not go together, or there is no such point.
        """
        limits = choice.get("limits", True)
        select = parse_select({k: v for k, v in choice.items() if k != "limits"})
        select = self.front.select.limits_in(select) if limits else select
        points = self.front.points[: self.saved]
        chosen = self.front.selected if self.front.selected < self.saved else 0
        known = self.front.model_copy(update={"points": points, "selected": chosen})
        found = choose_point(known, select, surrogates)
        front = found.model_copy(update={"selected": chosen, "select": known.select})
        at, count = found.selected, len(front.points)
        marked = (
            self.marked if self.marked is not None and self.marked < count else None
        )
        view = replace(
            self,
            front=front,
            at=at,
            order=tuple(range(count)),
            sorted_by=None,
            marked=marked,
            choice=dict(choice),
            missing=_missing(front, select),
        )
        return view.sorted(self.sorted_by[0]) if self.sorted_by else view

    def without_wish(self) -> View:
        """Return the view without limits and preferences."""
        view = View.of(
            self.front.model_copy(update={"points": self.front.points[: self.saved]})
        )
        return view.moved(min(self.at, self.saved - 1))


def best_reading(merge: Merge, task: str) -> tuple[Reading, str]:
    """Return the best known estimate of a merge on a task, and its source."""
    if merge.is_measured(task):
        return merge.measured[task], "measured"
    predicted = merge.readings("predicted").get(task, merge.measured[task])
    return predicted, "predicted"


def _missing(front: Front, select: SelectSpec) -> frozenset[int]:
    limits = find_limits(select, front.metrics, anchor_values(front))
    lower = lower_limits(front.metrics, limits)
    utilities = front.utilities(front.points, "predicted")
    kept = (utilities >= lower).all(axis=1)
    return frozenset(np.flatnonzero(~kept).tolist())


def rivals(view: View) -> Sequence[tuple[str, Merge]]:
    """List the rivals of a point: the marked point, then the anchors."""
    found = [(anchor.label or "", anchor) for anchor in view.front.anchors]
    if view.marked is not None and view.marked != view.at:
        found.insert(0, (f"point {view.marked}", view.front.points[view.marked]))
    elif view.front.selected != view.at:
        chosen = view.front.selected
        found.insert(0, (f"point {chosen}, the chosen one", view.front.chosen))
    return found
