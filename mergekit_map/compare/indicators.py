"""Measures of fronts and of surrogates (the paper's section 4.1 and its appendix).

Notation: ``n`` points of a front, ``m`` tasks, ``Y`` (n, m) measured metrics, larger is
better. A front need not be free of dominated points: what was found is what counts.
Every function refuses fronts that are empty, of another width than the front they are
compared with, or not finite, with a ValueError: failed merges are the caller's to drop.
"""

from __future__ import annotations

import moocore
import numpy as np
from scipy.spatial.distance import cdist

from mergekit_map.search.arrays import FloatArray

# The hypervolume's reference point, between a front's ideal (0) and its nadir (1).
REFERENCE_POINT = 1.1
# Exact hypervolumes take time exponential in m: 1000 points took 0.01 s with 5 tasks,
# 1.5 s with 6; 200 took 0.9 s with 7, 17 s with 8. Beyond this they are approximated.
EXACT_MAX_TASKS = 5


def win_rate(
    ours: FloatArray, theirs: FloatArray, rng: np.random.Generator, k: int = 100
) -> float:
    """Compare k points of each front, every pair in every task (section 4.1).

    Returns the share of comparisons that ours (n, m) wins over theirs (n', m), in
    [0, 1]. The paper counts ties as lost; we count them half, so that a front ties with
    itself and the rates of the two sides sum to 1. Points are drawn with replacement
    from a front of fewer than k.
    """
    _check_pair(ours, theirs)
    if k < 1:
        raise ValueError(f"a win rate needs at least one point per front, got {k}")
    first = ours[rng.choice(len(ours), k, replace=len(ours) < k)][:, None]
    second = theirs[rng.choice(len(theirs), k, replace=len(theirs) < k)][None]
    return float((first > second).mean() + (first == second).mean() / 2)


def generational_distance(front: FloatArray, reference: FloatArray) -> float:
    """Measure how far a front is from a reference, as the paper's appendix prints it.

    GD = sqrt(sum of squared distances to the nearest reference point) / n, in the
    metrics' own units: tasks of different units are to be normalised first. It shrinks
    with the number of points. With the two exchanged it is the inverted distance: how
    well the front covers the reference.
    """
    _check_pair(front, reference)
    nearest = cdist(front, reference).min(axis=1)
    return float(np.linalg.norm(nearest) / len(nearest))


def hypervolume(front: FloatArray, reference: FloatArray) -> float:
    """Divide a front's hypervolume by that of a reference front.

    Every task is scaled by the reference's ideal (0) and nadir (1), and volumes reach
    to 1.1, so that the ends of a front count. A point beyond that in any task adds
    nothing; one better than the ideal counts in full, so the ratio may exceed 1. A task
    that is constant over the reference has no unit there: it is scaled by its range
    over both fronts together. Exact up to 5 tasks; beyond, the deterministic
    approximation of moocore (off by about 0.0005 of the value with 8 tasks).
    """
    _check_pair(front, reference)
    ideal, width = reference.max(axis=0), np.ptp(reference, axis=0)
    both = np.ptp(np.vstack([front, reference]), axis=0)
    width = np.where(width > 0, width, np.where(both > 0, both, 1.0))

    exact = len(width) <= EXACT_MAX_TASKS
    indicator = moocore.hypervolume if exact else moocore.hv_approx

    def volume(Y: FloatArray) -> float:  # moocore minimises
        return float(indicator((ideal - Y) / width, ref=REFERENCE_POINT))

    return volume(front) / volume(reference)


def r_squared(y: FloatArray, predicted: FloatArray) -> float:
    """Share of the variance of y (n,) that predictions (n,) of unseen points explain.

    1 is perfect, 0 is as good as the mean of y, which is not known to the surrogate,
    and there is no lower limit. NaN where y is constant: there is nothing to explain.
    """
    if y.ndim != 1 or y.shape != predicted.shape or len(y) == 0:
        raise ValueError(f"need two equal (n,), got {y.shape} and {predicted.shape}")
    if not (np.isfinite(y).all() and np.isfinite(predicted).all()):
        raise ValueError("values and predictions must be finite")
    if np.ptp(y) <= 1e-12 * np.abs(y).max():
        return float("nan")
    return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def draw_preferences(n_tasks: int, rng: np.random.Generator, n: int = 20) -> FloatArray:
    """Draw n preferences, (n, n_tasks): uniform in [0, 1), then normalised to sum 1.

    The paper says that its 20 are normalised, not how they are drawn.
    """
    weights = rng.random((n, n_tasks))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _check_pair(first: FloatArray, second: FloatArray) -> None:
    for Y in (first, second):
        if Y.ndim != 2 or 0 in Y.shape:
            raise ValueError(f"need (n, m) of at least one point, got {Y.shape}")
        if not np.isfinite(Y).all():
            raise ValueError("metrics must be finite; leave failed merges out")
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"got {first.shape[1]} and {second.shape[1]} tasks")
