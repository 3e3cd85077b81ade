"""The choice of a merge, from those that were measured or from the whole front.

At the end of a search the choice is among the measured points of its front:

1. *Allowed* is a point that keeps the limits and is on no task significantly worse than
   ``not_worse_than``, or than the base if nothing is selected: by two standard errors
   of the paired difference. A limit may be missed by one, if no such point meets it.
2. Points that are significantly better than the base, on a task that counts or in the
   sum, come first; of these, those better than all references that keep the limits,
   unless the selection has a preference, or asks for the knee or an achievement.
3. Of these the largest sum of gains is chosen. Each gain is divided by the range of its
   task over the front; the tasks count alike, or as preferred. Without a preference, a
   task on which no point is significantly better than the base counts less, the more
   of the best reference's gain over the base may be noise.
4. If others of these *dominate* it, are significantly better on some task and behind by
   a standard error on none, the one of them with the largest sum is chosen: once, as
   a step to a neighbour after another would lead to an end of the front.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError, DesignError
from mergekit_map.optimize.scalarization import (
    Scalarization,
    nearest_to_limits,
    scalarized_optimum,
    select_point,
)
from mergekit_map.results.front import KINDS, UNKNOWN, Front, Merge
from mergekit_map.results.gains import on_held_out
from mergekit_map.results.limits import (
    Anchors,
    Request,
    excess,
    keep_limits,
    reason,
    shortfall,
    unmet_limits,
)
from mergekit_map.results.paired import BEHIND, Indices, PairedMerges
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray, ranges
from mergekit_map.types import BASE, SIGNIFICANT
from mergekit_map.utils.text import nearest

if TYPE_CHECKING:
    from mergekit_map.surrogates.fit import Surrogates

MERGE = "merge"  # the advice to use the chosen merge
_NOT_WORSE = SelectSpec(not_worse_than=BASE)  # what holds where nothing is asked for


def choose_measured(front: Front) -> Front:
    """Choose among the measured points, as the selection of the front requires.

    A point chosen by its index stays. If no point is allowed, the nearest is chosen.
    """
    select, measured, points = front.select, front.complete, front.measured_points
    if select.index is not None or not len(points):
        return front
    violation = excess(front, measured).max(axis=1)
    candidates = np.intersect1d(points, measured[violation <= 0])
    if not len(candidates):
        nearest = int(violation[: len(points)].argmin())
        if np.isinf(violation[nearest]):  # as standard errors are not known
            asked = select if select.model_fields_set else _NOT_WORSE
            request = Request(asked, front.metrics, Anchors.of(front))
            lower = request.scalarization().lower
            nearest = nearest_to_limits(_values(front)[points], lower)
        return chosen_as(front, int(points[nearest]), select)
    candidates = _preferably(candidates, shortfall(front, candidates).max(axis=1) == 0)
    anchors = np.intersect1d(measured, front.anchor_indices)
    beats = np.array([_beats(front, p, anchors) for p in candidates])
    achievement = select.scalarization == "achievement"
    wish = bool(select.prefer) or select.knee or achievement
    is_base = anchors == front.anchor_index(BASE)
    for rivals in (is_base, is_base if wish else keep_limits(front, anchors)):
        preferred = np.asarray(beats[:, rivals].all(axis=1))
        candidates = _preferably(candidates, preferred)
        beats = _preferably(beats, preferred)
    weights = Request.of(front).weights()
    for _ in range(2):
        mask = np.isin(np.arange(len(front.points)), candidates)
        chosen = select_point(_values(front), weights, mask, achievement=achievement)
        z = PairedMerges.of(front, candidates, chosen).z_scores
        better = (z >= SIGNIFICANT).any(axis=1) & (z > -BEHIND).all(axis=1)
        candidates = candidates[better]
        if not better.any():
            break
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
    anchors = np.intersect1d(front.complete, front.anchor_indices)
    beaten = _beats(front, front.selected, anchors)
    beaten |= _beats(front, front.selected, anchors, on_held_out(front)[1])
    if not front.select.require:  # a limit that it misses is named, not advised by
        beaten &= keep_limits(front, front.measured_points).any()
    unbeaten = anchors[keep_limits(front, anchors) & ~beaten]
    if not len(unbeaten):
        return MERGE
    if (base := front.anchor_index(BASE)) is not None and base in unbeaten:
        better = unbeaten[_beats(front, unbeaten, base)]
        unbeaten = better if len(better) else np.array([base])
    sums = _with_sum(front, unbeaten, unbeaten).Y[:, -1]
    return front.all_merges[unbeaten[sums.argmax()]].label or MERGE


def beats_somewhere(
    front: Front, label: str, tasks: Iterable[str]
) -> tuple[IntArray, IntArray]:
    """Return other points that are significantly better than a reference; (r,), (s,).

    On one of these tasks, whatever they lose on others; and by the weighted sum. They
    are measured and keep the limits.
    """
    points = front.measured_points[keep_limits(front, front.measured_points)]
    points = points[points != front.selected]
    columns = [[*front.tasks].index(task) for task in tasks]
    rival = front.anchor_indices[[anchor.label == label for anchor in front.anchors]]
    better = PairedMerges.of(front, points, rival).better[:, columns].any(axis=1)
    return points[better], points[_with_sum(front, points, rival).better[:, -1]]


def _beats(
    front: Front, first: Indices, second: Indices, values: Front | None = None
) -> BoolArray:
    """Return which merges are significantly better than others somewhere; (r,).

    They are compared by the ``values`` of another front, if it has other documents.
    """
    return np.asarray(_with_sum(front, first, second, values).better.any(axis=1))


def _values(front: Front) -> FloatArray:
    """Return the values of the points, predicted where not measured; (k, m)."""
    predicted, measured = (front.utilities(front.points, kind) for kind in KINDS)
    is_measured = np.isfinite(measured).all(axis=1, keepdims=True)
    return np.where(is_measured, measured, predicted)


def _preferably(candidates: IntArray, preferred: BoolArray) -> IntArray:
    return candidates[preferred] if preferred.any() else candidates


def _with_sum(
    front: Front, first: Indices, second: Indices, values: Front | None = None
) -> PairedMerges:
    """Compare merges on the tasks that count; the last column is the weighted sum."""
    weights, Y = Request.of(front).weights(), _values(front)
    if len(Y) == 1:  # it has no range
        Y = front.utilities([front.all_merges[i] for i in front.complete], "measured")
    scales, counts = weights / weights.sum() / ranges(Y), weights > 0
    paired = PairedMerges.of(values or front, first, second)
    variances = np.nan_to_num((paired.stderr[:, counts] * scales[counts]) ** 2)
    stderr = np.sqrt(variances.sum(axis=1))
    # The degrees of freedom of such a sum (Satterthwaite, Biometrics Bulletin 2, 1946).
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        df = stderr**4 / (variances**2 / (paired.items[:, counts] - 1)).sum(axis=1)
    items = np.where(np.isnan(df), np.inf, df + 1)
    return PairedMerges(
        np.column_stack([paired.Y[:, counts], paired.Y @ scales]),
        np.column_stack([paired.other[:, counts], paired.other @ scales]),
        np.column_stack([paired.stderr[:, counts], stderr]),
        np.column_stack([paired.items[:, counts], items]),
        np.append(paired.answers[counts], [False]),
    )


def choose_point(
    front: Front, select: SelectSpec, surrogates: Surrogates | None = None
) -> Front:
    """Choose a point of a front as requested, measured or predicted.

    With surrogates, a merge that they predict to be better than all points becomes the
    last point. Raises ConfigError if there is no such task or a limit cannot be
    computed, and DesignError if there is no such point, or no merge within the limits.
    """
    for key, names in (("prefer", select.prefer), ("require", select.require)):
        for name in names or ():
            if name not in front.tasks:
                raise ConfigError(
                    f"{key}: there is no task {name!r}; {nearest(name, front.tasks)}"
                )
    requested = front.model_copy(update={"select": select})
    request = Request.of(requested)
    Y = front.utilities(front.points, "predicted")
    outside = front.measured_points[~keep_limits(requested, front.measured_points)]
    failed = [i for i, point in enumerate(front.points) if point.has_failed]
    index = choose(request, Y, [*outside, *failed])
    if surrogates and select.index is None:
        better = _best_of_box(front, request.scalarization(), surrogates)
        if better is not None:
            front, index = _with_point(front, better), len(front.points)
    chosen = chosen_as(front, index, select)
    missed = unmet_limits(chosen, predicted=True) or unmet_limits(chosen)
    fault = f"does not keep {missed}" if missed else ""
    if chosen.chosen.has_failed:
        fault = "failed when it was measured"
    if select.index is None and fault:
        raise DesignError(
            f"no merge that keeps all limits was found; the nearest "
            f"({chosen.chosen.weights}) {fault}; relax a limit, nothing is measured "
            "again"
        )
    return chosen


def _best_of_box(
    front: Front, scalarization: Scalarization, surrogates: Surrogates
) -> Merge | None:
    """Return the merge that is predicted to be better than all points, if any."""
    # It brings SciPy, which takes longer than all else where a point is looked up.
    from mergekit_map.results.surrogates import locate_in, merge_at, predict

    signs = [metric.sign for metric in front.metrics.values()]

    def utilities(X: FloatArray) -> FloatArray:
        return np.column_stack([one.predict(X) for one in surrogates.values()]) * signs

    X = locate_in(front, (point.coefficients for point in front.points))
    X = X[np.isfinite(X).all(axis=1)]
    if not len(X):
        return None
    optimum = scalarized_optimum(utilities, front.axis_bounds, X, scalarization)
    if optimum is None:
        return None
    coefficients = merge_at(front, optimum)
    if any(m.coefficients == coefficients for m in (*front.anchors, *front.merges)):
        return None  # it was tried
    return Merge(
        coefficients=coefficients,
        predicted=predict(surrogates, optimum[None])[0],
        measured=dict.fromkeys(front.tasks, UNKNOWN),
    )


def _with_point(front: Front, point: Merge) -> Front:
    """Add a point to a front as its last one; later merges of it move up by one."""
    index, differences = len(front.points), {}
    for task, old in front.differences.items():
        merges = tuple(merge + (merge >= index) for merge in old.merges)
        differences[task] = old.model_copy(update={"merges": merges})
    points = (*front.points, point)
    return front.model_copy(update={"points": points, "differences": differences})


def with_recommended(front: Front) -> Front:
    """Recommend the measured points that no merge of the search dominates."""
    # It brings moocore, of no use for a choice.
    from mergekit_map.optimize.front_filling import non_dominated

    Y = front.utilities(front.all_merges, "measured")
    for index, merge in enumerate(front.all_merges):
        on_some = any(one.documents is not None for one in merge.measured.values())
        if on_some or merge.linear is not None:
            Y[index] = np.nan
    best = np.flatnonzero(non_dominated(Y)[: len(front.points)])
    return front.model_copy(update={"recommended": tuple(best.tolist())})


def chosen_as(front: Front, index: int, select: SelectSpec) -> Front:
    """Make a point the chosen one, with the reason."""
    chosen = front.model_copy(update={"selected": index, "select": select})
    return chosen.model_copy(update={"reason": reason(chosen)})


def choose(request: Request, Y: FloatArray, excluded: Iterable[int] = ()) -> int:
    """Choose a row of the front's utilities Y (k, m), a column per task, as requested.

    If all rows miss a limit, the nearest is chosen. Rows in ``excluded`` failed, or
    were measured to miss one. Raises DesignError if there is no such row, and as
    ``Request.limits``.
    """
    select = request.select
    if select.index is not None:
        if select.index >= len(Y):
            raise DesignError(
                f"the front has the points 0 to {len(Y) - 1}, not {select.index}; "
                "choose one of them, nothing is measured again"
            )
        return select.index
    aim = request.scalarization()
    allowed = np.all(aim.lower <= Y, axis=1)
    allowed[[*excluded]] = False
    if not allowed.any():
        return nearest_to_limits(Y, aim.lower)
    return select_point(Y, aim.weights, allowed, achievement=aim.achievement)
