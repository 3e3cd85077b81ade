"""The choice of a merge, from those that were measured or from the whole front.

At the end of a search the choice is among the measured points of its front:

1. *Allowed* is a point that keeps the limits and is on no task significantly worse than
   the base: by two standard errors of the paired difference.
2. A point is left out if an allowed merge *dominates* it: is significantly better on
   some task and behind by a standard error on none.
3. Points that are significantly better than the base, on a task that counts or in the
   sum, come first.
4. Of these the largest sum of gains is chosen. Each gain is divided by the range of its
   task over the front; the tasks count alike, or as preferred. Without a preference, a
   task counts less, the more of the best reference's gain over the base may be noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError, DesignError, nearest
from mergekit_map.optimize.scalarization import (
    Wish,
    best_merge,
    nearest_to_limits,
    select_point,
)
from mergekit_map.results.front import UNKNOWN, Front, Merge
from mergekit_map.results.gains import on_held_out
from mergekit_map.results.limits import (
    Request,
    excess,
    keep_limits,
    reason,
    unmet_limits,
)
from mergekit_map.results.paired import PairedMerges, Places
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray, ranges
from mergekit_map.types import BASE, SIGNIFICANT

if TYPE_CHECKING:
    from mergekit_map.surrogates.fit import Surrogate

MERGE = "merge"  # the advice to use the chosen merge


def choose_measured(front: Front) -> Front:
    """Choose among the measured points, as the selection of the front requires.

    A point chosen by its index stays. If no point is allowed, the nearest is chosen.
    """
    select = front.select
    whole = front.complete
    points = _measured_points(front)
    if select.index is not None or not len(points):
        return front
    missing = excess(front, whole).max(axis=1)
    allowed = whole[missing <= 0]
    rows = np.intersect1d(points, allowed)
    if not len(rows):
        return chosen_as(front, int(whole[missing[: len(points)].argmin()]), select)
    rows = _first(rows, np.array([not _dominated(front, r, allowed) for r in rows]))
    anchors = np.intersect1d(whole, front.anchor_places)
    base = np.array([front.known[i].label == BASE for i in anchors], bool)
    beaten = [_beats(front, row, anchors) for row in rows]
    rows = _first(rows, np.array([found[base].any() for found in beaten]))
    mask = np.isin(np.arange(len(front.points)), rows)
    weights = Request.of(front).weights()
    achievement = select.scalarization == "achievement"
    chosen = select_point(_values(front), weights, mask, achievement=achievement)
    return chosen_as(front, chosen, select)


def advice(front: Front) -> str:
    """Return ``MERGE``, or the label of the reference point to use instead.

    That is a reference point that keeps the limits and that the chosen point is not
    significantly better than: on no task that counts, and not by the weighted sum, all
    tested together, on the documents of the search or on held-out ones; or any, if all
    measured points are worse than models they must not be worse than. Of several it is
    the base, or of those significantly better than the base the one with the largest
    sum.
    """
    if front.unfinished is not None or front.selected not in front.complete:
        return MERGE
    anchors = np.intersect1d(front.complete, front.anchor_places)
    shown = on_held_out(front)[1]
    beaten = _beats(front, front.selected, anchors)
    beaten |= _beats(front, front.selected, anchors, shown)
    if not front.select.require:  # a limit that it misses is named, not advised by
        beaten &= keep_limits(front, _measured_points(front)).any()
    instead = anchors[keep_limits(front, anchors) & ~beaten]
    base = [i for i in instead if front.known[i].label == BASE]
    if base:
        better = instead[_beats(front, instead, base[0])]
        instead = better if len(better) else np.array(base)
    sums = _with_sum(front, instead, instead).Y[:, -1]
    return front.known[instead[sums.argmax()]].label or MERGE if len(instead) else MERGE


def beats_somewhere(front: Front, label: str, counted: Iterable[str]) -> bool:
    """Whether a measured point is significantly better than a reference point.

    On some task that counts, whatever it loses on others; it keeps the limits, and is
    tested by itself.
    """
    labels = [anchor.label for anchor in front.anchors]
    rival = int(front.anchor_places[labels.index(label)])
    points = _measured_points(front)
    points = points[keep_limits(front, points)]
    columns = [[*front.tasks].index(task) for task in counted]
    return any(
        PairedMerges.of(front, point, rival).tested().better[:, columns].any()
        for point in points[:, None]
    )


def _measured_points(front: Front) -> IntArray:
    return front.complete[front.complete < len(front.points)]


def _beats(
    front: Front, ones: Places, others: Places, shown: Front | None = None
) -> BoolArray:
    """Return which merges are significantly better than others somewhere; (r,).

    They are compared by the values of ``shown``, if another front has other documents.
    """
    better = _with_sum(front, ones, others, shown).tested().better
    return np.asarray(better.any(axis=1))


def _values(front: Front) -> FloatArray:
    """Return the values of the points, predicted where not measured; (k, m)."""
    measured = front.utilities(front.points, "measured")
    predicted = front.utilities(front.points, "predicted")
    whole = np.isfinite(measured).all(axis=1, keepdims=True)
    return np.where(whole, measured, predicted)


def _first(rows: IntArray, preferred: BoolArray) -> IntArray:
    """Keep the preferred rows, or all where there are none."""
    return rows[preferred] if preferred.any() else rows


def _dominated(front: Front, row: int, allowed: IntArray) -> bool:
    found = PairedMerges.of(front, allowed, row).tested()
    ahead = (found.scores >= SIGNIFICANT).any(axis=1)
    return bool((ahead & found.kept).any())


def _with_sum(
    front: Front, ones: Places, others: Places, shown: Front | None = None
) -> PairedMerges:
    """Compare merges on the tasks that count; the last column is the weighted sum."""
    weights = Request.of(front).weights()
    shares = weights / weights.sum() / ranges(_values(front))
    counted, found = weights > 0, PairedMerges.of(shown or front, ones, others)
    variances = (found.stderr[:, counted] * shares[counted]) ** 2
    stderr = np.sqrt(variances.sum(axis=1))
    # The degrees of freedom of such a sum (Satterthwaite, Biometrics Bulletin 2, 1946).
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        freedom = stderr**4 / (variances**2 / (found.items[:, counted] - 1)).sum(axis=1)
    items = np.where(np.isnan(freedom), np.inf, freedom + 1)

    def joined(values: FloatArray, last: FloatArray) -> FloatArray:
        return np.column_stack([values[:, counted], last])

    return PairedMerges(
        joined(found.Y, found.Y @ shares),
        joined(found.other, found.other @ shares),
        joined(found.stderr, stderr),
        joined(found.items, items),
        np.append(found.answers[counted], [False]),
    )


def choose_point(
    front: Front, select: SelectSpec, surrogates: Mapping[str, Surrogate] | None = None
) -> Front:
    """Choose a point of a front as requested, measured or predicted.

    With surrogates, a merge that they predict to be better than all points becomes the
    last point.

    Raises:
        ConfigError: there is no such task, or a limit cannot be computed.
        DesignError: there is no such point, or no merge within the limits.
    """
    for key, names in (("prefer", select.prefer), ("require", select.require)):
        for name in names or ():
            if name not in front.tasks:
                raise ConfigError(
                    f"{key}: there is no task {name!r}; {nearest(name, front.tasks)}"
                )
    request = Request.of(front, select)
    Y = front.utilities(front.points, "predicted")
    points = _measured_points(front)
    failed = points[~keep_limits(front.model_copy(update={"select": select}), points)]
    place = choose(request, Y, failed)
    if surrogates and select.index is None:
        better = _best_of_box(front, request.wish(), surrogates)
        if better is not None:
            front, place = _with_point(front, better), len(front.points)
    chosen = chosen_as(front, place, select)
    missed = unmet_limits(chosen, predicted=True) or unmet_limits(chosen)
    if select.index is None and missed:
        raise DesignError(
            f"no merge is predicted to keep all limits; the nearest "
            f"({chosen.chosen.weights}) does not keep {missed}; "
            "relax a limit, nothing is measured again"
        )
    return chosen


def _best_of_box(
    front: Front, wish: Wish, surrogates: Mapping[str, Surrogate]
) -> Merge | None:
    """Return the merge that is predicted to be better than all points, if any."""
    # It brings SciPy, which takes longer than all else where a point is looked up.
    from mergekit_map.results.surrogates import locate, named, predict

    bounds = front.axis_bounds
    signs = [metric.sign for metric in front.metrics.values()]

    def utilities(X: FloatArray) -> FloatArray:
        return np.column_stack([one.predict(X) for one in surrogates.values()]) * signs

    merges = [point.coefficients for point in front.points]
    X = locate(merges, front.coefficients, front.groups, bounds)
    X = X[np.isfinite(X).all(axis=1)]
    better = best_merge(utilities, bounds, X, wish) if len(X) else None
    if better is None:
        return None
    return Merge(
        coefficients=named(front, better),
        predicted=predict(surrogates, better[None])[0],
        measured=dict.fromkeys(front.tasks, UNKNOWN),
    )


def _with_point(front: Front, point: Merge) -> Front:
    """Add a point to a front as its last one."""
    place = len(front.points)
    moved = {task: known.with_room(place) for task, known in front.differences.items()}
    points = (*front.points, point)
    return front.model_copy(update={"points": points, "differences": moved})


def chosen_as(front: Front, index: int, select: SelectSpec) -> Front:
    """Make a point the chosen one, with the reason."""
    chosen = front.model_copy(update={"selected": index, "select": select})
    return chosen.model_copy(update={"reason": reason(chosen)})


def choose(
    request: Request, utilities: FloatArray, failed: IntArray | tuple[()] = ()
) -> int:
    """Choose a row of the front's utilities (k, m), a column per task, as requested.

    If all rows miss a limit, the nearest is chosen. Rows in ``failed`` were measured to
    miss one. Raises DesignError if there is no such row, and as ``Request.limits``.
    """
    select = request.select
    if select.index is not None:
        if select.index >= len(utilities):
            raise DesignError(
                f"the front has the points 0 to {len(utilities) - 1}, not "
                f"{select.index}; choose one of them, nothing is measured again"
            )
        return select.index
    wish = request.wish()
    allowed = np.all(utilities >= wish.lower, axis=1)
    allowed[[*failed]] = False
    if not allowed.any():
        return nearest_to_limits(utilities, wish.lower)
    return select_point(utilities, wish.weights, allowed, achievement=wish.achievement)
