"""The state of the browser: a front, its order, limits, and the current point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mergekit_map.config.problems import parse_select
from mergekit_map.errors import MapError
from mergekit_map.results.front import Front, Merge, Reading
from mergekit_map.results.limits import Request, excess
from mergekit_map.results.selection import choose_point
from mergekit_map.surrogates.arrays import BoolArray

if TYPE_CHECKING:
    from mergekit_map.surrogates.fit import Surrogate


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
