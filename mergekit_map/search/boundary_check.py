"""A check whether better merges lie beyond the bounds.

Points at the bounds are moved a little beyond them along one coefficient, and the
surrogates predict them; no new front is searched. Surrogates were fitted within the
bounds, so these predictions are extrapolations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from mergekit_map.optimize.pareto import volume
from mergekit_map.results.front import Border
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.surrogate import Surrogate
from mergekit_map.types import Metric

_BEYOND = 0.2  # how far past an end, as a share of the box
_STEPS = 5  # on the way there
_NEAR = 1e-3  # what lies at an end, as a share of the box
_TOLD = 1e-3  # a smaller gain is not worth a larger box


def find_border(
    surrogates: Mapping[str, Surrogate],
    metrics: Mapping[str, Metric],
    names: tuple[str, ...],
    X: FloatArray,
    anchors: FloatArray,
) -> Iterator[Border]:
    """Find the bounds beyond which the front would be better, as predicted.

    Args:
        surrogates: By task.
        metrics: By task.
        names: Of the axes of the surrogates.
        X: (k, d) the front.
        anchors: (a, d) merges that a front should be better than; NaN where unknown.
    """
    bounds = next(iter(surrogates.values())).bounds
    X, anchors = (rows[np.isfinite(rows).all(axis=1)] for rows in (X, anchors))
    if not len(X):
        return

    def utilities(rows: FloatArray) -> FloatArray:
        columns = [m.sign * surrogates[t].predict(rows) for t, m in metrics.items()]
        return np.column_stack(columns)

    Y = utilities(X)
    worst = np.vstack([Y, utilities(anchors)] if len(anchors) else [Y]).min(axis=0)
    for axis, (lower, upper) in enumerate(bounds.tolist()):
        for end, outward in ((lower, lower - upper), (upper, upper - lower)):
            there = np.abs(X[:, axis] - end) <= _NEAR * (upper - lower)
            if there.any():
                moved = utilities(_moved(X[there], axis, end, _BEYOND * outward))
                gain = hypervolume_gain(Y - worst, moved - worst)
                if gain >= _TOLD:
                    yield Border(
                        coefficient=names[axis],
                        end=end,
                        points=int(there.sum()),
                        beyond=float(f"{end + _BEYOND * outward:.12g}"),
                        gain=float(f"{gain:.3g}"),
                    )


def _moved(X: FloatArray, axis: int, end: float, by: float) -> FloatArray:
    steps = np.linspace(0, 1, _STEPS + 1)[1:]
    rows = np.repeat(X[None], _STEPS, axis=0)
    rows[:, :, axis] = end + by * steps[:, None]
    return rows.reshape(-1, X.shape[1])


def hypervolume_gain(Y: FloatArray, more: FloatArray) -> float:
    """Return the share that points (l, m) add to the hypervolume of others (k, m).

    Both hypervolumes are relative to the reference point, larger is better; 0 where
    there is no volume.
    """
    scale = Y.max(axis=0)
    if not (scale > 0).all():
        return 0.0
    before, after = (volume(rows / scale, 0.0) for rows in (Y, np.vstack([Y, more])))
    return after / before - 1 if before > 0 else 0.0
