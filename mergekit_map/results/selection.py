"""Selection of the point of a front that becomes the recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ConfigError, DesignError, nearest
from mergekit_map.optimize.scalarized_optimum import Predict, Wish, best_merge
from mergekit_map.optimize.selection import (
    nearest_to_limits,
    select_by_achievement,
    select_by_preference,
    select_knee,
)
from mergekit_map.results.front import UNKNOWN, Front, Merge, recipe_name
from mergekit_map.results.gains import Anchors, anchor_values
from mergekit_map.results.holdout_check import with_gains
from mergekit_map.results.limits import (
    find_limits,
    how_to_relax,
    lower_limits,
    out_of_reach,
)
from mergekit_map.results.narrative import reason, unmet_limits, verdicts_in_words
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import Metric

if TYPE_CHECKING:
    from mergekit_map.results.surrogate_file import Surrogates

_SCALARIZATIONS = {"sum": select_by_preference, "achievement": select_by_achievement}


def choose_point(
    front: Front, select: SelectSpec, surrogates: Surrogates | None = None
) -> Front:
    """Choose a point of a front as requested.

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
    anchors = anchor_values(front)
    if surrogates is not None and select.index is None:
        longer = _with_better_merge(front, select, surrogates, anchors)
        if longer is not None:
            chosen = chosen_as(longer, len(front.points), select)
            if missed := unmet_limits(chosen):
                raise DesignError(
                    "no merge in the searched box is predicted to keep its limits; the "
                    f"nearest ({chosen.chosen.weights}) misses {missed}; "
                    f"{how_to_relax(select)}, nothing is measured again"
                )
            return chosen
    predicted = front.utilities(front.points, "predicted")
    index = choose(select, front.metrics, predicted, anchors)
    return chosen_as(front, index, select)


def _with_better_merge(
    front: Front, select: SelectSpec, surrogates: Surrogates, anchors: Anchors
) -> Front | None:
    """Add the merge that is predicted to be better than all points, if there is one."""
    # It brings SciPy, which takes longer than all else where a point is looked up.
    from mergekit_map.results.surrogate_file import locate, predict

    fitted, metrics = surrogates.values(), front.metrics
    bounds = next(iter(fitted.values())).bounds
    signs = [metric.sign for metric in metrics.values()]

    def utilities(X: FloatArray) -> FloatArray:
        return np.column_stack([fitted[task].predict(X) for task in metrics]) * signs

    merges = [point.coefficients for point in front.points]
    X = locate(merges, front.coefficients, surrogates.groups, bounds)
    X = X[np.isfinite(X).all(axis=1)]
    wish = wished(select, metrics, anchors)
    better = best_merge(utilities, bounds, X, wish) if len(X) else None
    if better is None:
        return None
    order = {task: fitted[task] for task in metrics}
    point = Merge(
        coefficients=surrogates.named(better),
        predicted=predict(order, better[None])[0],
        measured=dict.fromkeys(metrics, UNKNOWN),
        recipe=recipe_name(len(front.points)),
    )
    place = len(front.points)
    moved = {task: known.with_room(place) for task, known in front.differences.items()}
    points = (*front.points, point)
    return front.model_copy(update={"points": points, "differences": moved})


def chosen_as(front: Front, index: int, select: SelectSpec) -> Front:
    """Make a point the chosen one, with the reason, and renew the diagnostics."""
    chosen = front.model_copy(update={"selected": index, "select": select})
    return judged(chosen.model_copy(update={"reason": reason(chosen)}))


def judged(front: Front) -> Front:
    """Renew the diagnostics of a front, as far as the numbers are known."""
    front = with_gains(front)
    return front.model_copy(update={"verdicts": verdicts_in_words(front)})


def choose(
    select: SelectSpec,
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    anchors: Anchors,
    *,
    strict: bool = True,
) -> int:
    """Choose a row of the front's utilities (k, m), a column per task, as requested.

    If all rows miss a limit, the nearest is chosen, unless ``strict``.

    Raises:
        ConfigError: a limit cannot be computed from the measurements.
        DesignError: there is no such row, or none within the limits.
    """
    if select.index is not None:
        if select.index >= len(utilities):
            raise DesignError(
                f"the front has the points 0 to {len(utilities) - 1}, not "
                f"{select.index}; choose one of them, nothing is measured again"
            )
        return select.index
    limits = find_limits(select, tasks, anchors)
    lower = lower_limits(tasks, limits)
    allowed = np.all(utilities >= lower, axis=1)
    if not allowed.any():
        if strict:
            raise DesignError(
                out_of_reach(tasks, utilities, limits, lower, how_to_relax(select))
            )
        return nearest_to_limits(utilities, lower)
    if select.knee:
        return select_knee(utilities, allowed)
    weights = _weights(select, tasks)
    return _SCALARIZATIONS[select.scalarization](utilities, weights, allowed)


def choose_merge(
    select: SelectSpec,
    tasks: Mapping[str, Metric],
    predict_utilities: Predict,
    bounds: FloatArray,
    X: FloatArray,
    anchors: Anchors,
) -> tuple[FloatArray, int]:
    """Choose a merge as requested: a front point of X (k, d), or one between them.

    A merge within the bounds (d, 2) that is predicted to be better than all points
    becomes a further row. If none keeps the limits, the nearest is chosen. Returns the
    rows and the index of the chosen one.

    Raises:
        ConfigError: a limit cannot be computed from the measurements.
        DesignError: there is no such row.
    """
    better = None
    if select.index is None:
        wish = wished(select, tasks, anchors)
        better = best_merge(predict_utilities, bounds, X, wish)
    if better is not None:
        return np.vstack([X, better]), len(X)
    chosen = choose(select, tasks, predict_utilities(X), anchors, strict=False)
    return X, chosen


def wished(select: SelectSpec, tasks: Mapping[str, Metric], anchors: Anchors) -> Wish:
    """Return the request as numbers, in the order of the tasks.

    Raises:
        ConfigError: a limit cannot be computed from the measurements.
    """
    weights = np.ones(len(tasks)) if select.knee else _weights(select, tasks)
    shares = weights / weights.max()
    return Wish(
        weights=shares / shares.sum(),
        lower=lower_limits(tasks, find_limits(select, tasks, anchors)),
        achievement=select.scalarization == "achievement" and not select.knee,
    )


def _weights(select: SelectSpec, tasks: Iterable[str]) -> FloatArray:
    prefer = select.preference(tasks)
    return np.array([prefer.get(task, 0.0) for task in tasks])
