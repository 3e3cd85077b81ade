"""Fill the gaps of a front that is nearly found, and thin it; used by ``nsga`` alone.

Notation: ``n`` points of the unit box in ``d`` coefficients, ``m`` tasks, ``scores``
maps (k, d) to (k, m), larger is better. A genetic algorithm finds where a front is, but
a front of three and more tasks has more points than a population. Between two of them
lies nearly another one, and a few steps make it one.
"""

from __future__ import annotations

import heapq

import moocore
import numpy as np

from mergekit_map.search.arrays import BoolArray, FloatArray, IntArray, ranges
from mergekit_map.search.polish import Scores, push_to_front
from mergekit_map.search.selection import spread

# Metrics that differ by less than this fraction of a task's range are equal.
SAME_METRIC = 1e-9
N_ROUNDS = 2
_N_CHILDREN = 2  # of each point and round
_N_KEPT = 3  # of the points found, for each that is asked for
_N_STEPS = 2  # from between two points of the front back onto it
_N_LAST_STEPS = 15
_MAX_EXACT_TASKS = 4  # whose hypervolume is computed in a fraction of a millisecond
_BEHIND_WORST = -0.1  # of the range: where volumes start, so that ends have one


def densify(
    scores: Scores, points: FloatArray, n_points: int, rng: np.random.Generator
) -> FloatArray:
    """Spread about n_points over the front that points (n, d) are near to.

    Returns at most n_points mutually non-dominated points, the best of every task among
    the points given first.
    """
    found = push_to_front(scores, points, _N_LAST_STEPS)
    found = _front(scores, np.vstack([points, found]))
    for _ in range(N_ROUNDS):
        children = _between(scores, found, _N_CHILDREN * n_points, rng)
        pushed = push_to_front(scores, children, _N_STEPS)
        found = _front(scores, np.vstack([found, pushed]))
        found = found[spread(scores(found), _N_KEPT * n_points)]
    kept = found[_most_volume(scores(found), n_points)]
    return push_to_front(scores, kept, _N_LAST_STEPS)


def non_dominated(Y: FloatArray) -> BoolArray:
    """Mark the rows of Y (n, m) that no other row dominates, larger is better.

    A row dominates another if it is nowhere smaller and somewhere larger, so equal rows
    are all kept. A row with NaN counts as dominated and dominates nothing.
    """
    known = ~np.isnan(Y).any(axis=1)
    mask: BoolArray = np.full(len(Y), fill_value=False)
    if known.any():
        mask[known] = moocore.is_nondominated(Y[known], maximise=True, keep_weakly=True)
    return mask


def rounded(scores: FloatArray) -> FloatArray:
    """Count in units of what is told apart."""
    whole: FloatArray = np.round(scores / SAME_METRIC)
    return whole


def _front(scores: Scores, points: FloatArray) -> FloatArray:
    Y = rounded(scores(points))
    first = moocore.is_nondominated(Y, maximise=True, keep_weakly=False)
    front: FloatArray = points[first]
    return front


def _most_volume(Y: FloatArray, k: int) -> IntArray:
    """Choose k rows of Y (n, m) that show the front, and dominate nearly all of it.

    A third of them is spread evenly, the ends first. Of the others that one is next
    which adds the largest hypervolume. A gain only shrinks as rows join, so that one
    which is still the largest when it is computed again needs no comparison.
    """
    n, m = Y.shape
    if n <= k or m > _MAX_EXACT_TASKS:
        return spread(Y, k)
    scaled = (Y - Y.min(axis=0)) / ranges(Y)
    volume = moocore.Hypervolume(ref=np.full(m, _BEHIND_WORST), maximise=True)
    chosen = [int(i) for i in spread(Y, max(k // 3, min(k, m)))]
    rest = sorted(set(range(n)) - set(chosen))
    covered = volume(scaled[chosen])
    gains = [(covered - volume(scaled[[*chosen, i]]), i) for i in rest]
    heapq.heapify(gains)
    while len(chosen) < k:
        index = heapq.heappop(gains)[1]
        gain = volume(scaled[[*chosen, index]]) - covered
        if gains and -gain > gains[0][0]:
            heapq.heappush(gains, (-gain, index))
        else:
            chosen.append(index)
            covered += gain
    return np.array(chosen, dtype=np.int_)


def _between(
    scores: Scores, points: FloatArray, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw n points between, and beyond, neighbours on a front; (n, d)."""
    Y = scores(points)
    one = np.resize(spread(Y, n), n)
    distance = np.linalg.norm(Y[one][:, None] - Y, axis=2)
    near = np.argsort(distance, axis=1)[:, : 1 + 2 * Y.shape[1]]
    other = near[np.arange(n), rng.integers(near.shape[1], size=n)]
    share = rng.uniform(-0.5, 1.5, size=(n, 1))
    return np.clip(points[one] + share * (points[other] - points[one]), 0, 1)
