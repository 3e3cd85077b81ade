"""Filling of an approximate front: Newton steps onto it, and points in its gaps.

Notation: ``n`` points, ``d`` coefficients on the unit box, ``m`` tasks, ``scores`` maps
(k, d) to (k, m), each task in units of its own range, larger is better and smooth. The
paper stops at the genetic algorithm, which comes near the front but seldom onto it.

A step is Newton's for vector optimisation (Fliege, Grana Drummond and Svaiter, 2009):
up the shortest combination of the tasks' slopes, where all of them gain, measured by
the curvature of that combination. On the front there is no such step.

A front of three and more tasks has more points than a population. Between two of them
lies nearly another one, and a few steps move it onto the front. How much a point is
worth is the hypervolume that it adds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

import moocore
import numpy as np

from mergekit_map.optimize.scalarization import spread
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray, ranges

Scores: TypeAlias = Callable[[FloatArray], FloatArray]
STEP = 1e-3  # of the numerical derivatives, which are exact for quadratics
_LENGTHS = np.array([1.0, 0.5, 0.2, 0.05, 0.01])  # of a step, tried at once
_LONGEST = 0.5  # no step goes farther, on any axis of the box
_NOTHING = 1e-12  # a point that gains less has arrived
# A task may lose this share of what all gain, or points where one task is flat would
# be at rest whatever the others can gain there.
_SLACK = 1e-3
# Curvatures below this share of the largest would make steps without end.
_FLATTEST = 1e-6
_N_PASSES = 6  # shares, curvature and sides of the box depend on one another
_N_EXCHANGES = 60  # of shares between two tasks, which is plenty for a dozen
# Volumes reach a little below the nadir, so that the ends of a front count.
_BELOW_NADIR = -0.1
# Exact volumes take time exponential in the tasks (1000 points took 0.01 s with 5,
# 1.5 s with 6); with more, along so many directions they are near enough.
_MOST_TASKS, _DIRECTIONS = 5, 2**14
_QUICK_TASKS = 4  # whose hypervolume is computed in a fraction of a millisecond
# Metrics that differ by less than this fraction of a task's range are equal.
SAME_METRIC = 1e-9
_N_ROUNDS = 2
_N_CHILDREN = 2  # of each point and round
_N_KEPT = 3  # of the points found, for each that is asked for
_N_STEPS = 2  # from between two points of the front back onto it
_N_LAST_STEPS = 15


def climb(
    scores: Scores,
    points: FloatArray,
    n_steps: int,
    preferences: FloatArray | None = None,
) -> FloatArray:
    """Improve points (n, d) until no task can gain without another losing.

    Every step gains in total, and all but nothing is lost on any task, so that points
    stay where they are along the front, convex or not, as a weighted sum would not let
    them. Points where nothing better is found stay.

    With preferences (n, m) each point climbs to a local maximum of its own
    ``scores @ preference`` instead.
    """
    slack = _SLACK if preferences is None else 0.0
    points = points.copy()
    values = scores(points)
    moving = np.arange(len(points))
    for _ in range(n_steps):
        if not len(moving):
            break
        wanted = None if preferences is None else preferences[moving]
        slopes, curvatures = (
            shape + slack * shape.sum(axis=1, keepdims=True)
            for shape in _local_shape(scores, points[moving])
        )
        steps, weights = _steps(slopes, curvatures, points[moving], wanted)
        tried = np.clip(points[moving] + _LENGTHS[:, None, None] * steps, 0, 1)
        found = scores(tried.reshape(-1, points.shape[1]))
        gains = found.reshape(*tried.shape[:2], -1) - values[moving]
        total = (gains * (weights + slack)).sum(axis=2)
        best, better = total.argmax(axis=0), total.max(axis=0) > _NOTHING
        rows = np.arange(len(moving))
        moving, best, rows = moving[better], best[better], rows[better]
        points[moving] = tried[best, rows]
        values[moving] += gains[best, rows]
    return points


def _local_shape(scores: Scores, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return slopes (n, m, d) and curvatures (n, m, d, d) at points (n, d).

    By central differences around the point or, at the border, right inside of it.
    """
    n, d = points.shape
    rows, columns = np.triu_indices(d, 1)
    unit = STEP * np.eye(d)
    stencil = np.vstack([np.zeros((1, d)), unit, -unit, unit[rows] + unit[columns]])
    centres = np.clip(points, STEP, 1 - STEP)
    around = (centres[:, None] + stencil).reshape(-1, d)
    values = scores(around).reshape(n, len(stencil), -1)
    middle, up, down = values[:, :1], values[:, 1 : d + 1], values[:, d + 1 : 2 * d + 1]
    curvatures = np.empty((n, values.shape[2], d, d))
    axes = np.arange(d)
    curvatures[..., axes, axes] = ((up - 2 * middle + down) / STEP**2).swapaxes(1, 2)
    mixed = values[:, 2 * d + 1 :] - up[:, rows] - up[:, columns] + middle
    curvatures[..., rows, columns] = (mixed / STEP**2).swapaxes(1, 2)
    curvatures[..., columns, rows] = curvatures[..., rows, columns]
    slopes = ((up - down) / (2 * STEP)).swapaxes(1, 2)
    slopes = slopes + np.einsum("nmij,nj->nmi", curvatures, points - centres)
    return slopes, curvatures


def _steps(
    slopes: FloatArray,
    curvatures: FloatArray,
    points: FloatArray,
    shares: FloatArray | None,
) -> tuple[FloatArray, FloatArray]:
    """Find the step (n, d) of every point, up a shared slope and not out of the box.

    Shares (n, m) say how much each task counts; by default they are found. Returns
    them, too.
    """
    n, d = points.shape
    weights = np.zeros(slopes.shape[:2]) if shares is None else shares
    bend = np.broadcast_to(np.eye(d), (n, d, d))
    held = np.full((n, d), fill_value=False)
    aside = np.zeros((n, d))  # the step of what is held: up to the side of the box
    for _ in range(_N_PASSES):
        free = np.where(held, 0.0, 1.0)
        both = free[:, :, None] * free[:, None, :]
        matrix = bend * both + np.eye(d) * held[:, :, None]
        drag = aside - free * np.einsum("nij,nj->ni", bend, aside)
        sides = np.concatenate([slopes * free[:, None], drag[:, None]], axis=1)
        solved = np.linalg.solve(matrix, sides.swapaxes(1, 2))  # (n, d, m + 1)
        uphill, start = solved[:, :, :-1], solved[:, :, -1]
        if shares is None:
            offset = np.einsum("nmd,nd->nm", slopes, start)
            weights = _balance(slopes * free[:, None] @ uphill, offset)
        steps = start + np.einsum("ndm,nm->nd", uphill, weights)
        # What is held is let go where the slope turns back into the box.
        left = np.einsum("nm,nmi->ni", weights, slopes)
        left -= np.einsum("nij,nj->ni", bend, steps)
        wanted = steps + np.where(held, left, 0)
        aside = np.clip(wanted, -points, 1 - points)
        held = aside != wanted
        aside = np.where(held, aside, 0)
        bend = _steepness(np.einsum("nm,nmij->nij", weights, curvatures))
    steps = np.clip(points + steps, 0, 1) - points
    longest = np.abs(steps).max(axis=1, keepdims=True)
    return steps * np.minimum(1, _LONGEST / np.maximum(longest, _LONGEST)), weights


def _steepness(curvatures: FloatArray) -> FloatArray:
    """Make curvatures (n, d, d) positive definite, as if all of them were downwards."""
    size, axes = np.linalg.eigh(curvatures)
    size = np.abs(size)
    size = np.maximum(size, _FLATTEST * size.max(axis=1, keepdims=True) + 1e-9)
    return np.asarray((axes * size[:, None, :]) @ axes.swapaxes(1, 2))


def _balance(products: FloatArray, offsets: FloatArray) -> FloatArray:
    """Find the shares (n, m) with which no task alone would choose a better step.

    Two tasks exchange what helps most, again and again (as in SMO). Shares sum to 1.

    Args:
        products: (n, m, m) what each task gains from the step that each other wants.
        offsets: (n, m) what each gains without any share.
    """
    n, m, _ = products.shape
    rows = np.arange(n)
    shares = np.full((n, m), 1 / m)
    gains = products.sum(axis=2) / m + offsets
    for _ in range(_N_EXCHANGES if m > 1 else 0):
        least = gains.argmin(axis=1)
        most = np.where(shares > 0, gains, -np.inf).argmax(axis=1)
        one, other = products[rows, least], products[rows, most]
        bend = one[rows, least] + other[rows, most] - 2 * one[rows, most]
        ahead = gains[rows, most] - gains[rows, least]
        amount = np.minimum(ahead / np.maximum(bend, 1e-300), shares[rows, most])
        if not amount.any():
            break  # as every exchange from here on would be
        shares[rows, least] += amount
        shares[rows, most] -= amount
        gains += amount[:, None] * (one - other)
    return shares


def fill_front(
    scores: Scores, points: FloatArray, n_points: int, rng: np.random.Generator
) -> FloatArray:
    """Spread about n_points over the front that points (n, d) are near to.

    Returns at most n_points mutually non-dominated points, the best of every task among
    the points given first.
    """
    found = climb(scores, points, _N_LAST_STEPS)
    found = _front(scores, np.vstack([points, found]))
    for _ in range(_N_ROUNDS):
        children = _between(scores, found, _N_CHILDREN * n_points, rng)
        pushed = climb(scores, children, _N_STEPS)
        found = _front(scores, np.vstack([found, pushed]))
        found = found[spread(scores(found), _N_KEPT * n_points)]
    kept = found[_most_volume(scores(found), n_points)]
    return climb(scores, kept, _N_LAST_STEPS)


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
    """Round scores to whole units of ``SAME_METRIC``."""
    return np.round(scores / SAME_METRIC)


def _front(scores: Scores, points: FloatArray) -> FloatArray:
    Y = rounded(scores(points))
    first = moocore.is_nondominated(Y, maximise=True, keep_weakly=False)
    return np.asarray(points[first])


def _most_volume(Y: FloatArray, k: int) -> IntArray:
    """Choose k rows of Y (n, m) that show the front, and dominate nearly all of it.

    A third of them is spread evenly, the ends first. Of the others that one is next
    which adds the largest hypervolume. A gain only shrinks as rows join, so that one
    which is still the largest when it is computed again needs no comparison.
    """
    n, m = Y.shape
    if n <= k or m > _QUICK_TASKS:
        return spread(Y, k)
    scaled = (Y - Y.min(axis=0)) / ranges(Y)
    chosen = [int(i) for i in spread(Y, max(k // 3, min(k, m)))]
    rest = sorted(set(range(n)) - set(chosen))
    covered = volume(scaled[chosen], _BELOW_NADIR)
    added = gains(scaled[rest], scaled[chosen])
    largest = [(-gain, i) for gain, i in zip(added.tolist(), rest, strict=True)]
    heapq.heapify(largest)
    while len(chosen) < k:
        index = heapq.heappop(largest)[1]
        gain = volume(scaled[[*chosen, index]], _BELOW_NADIR) - covered
        if largest and -gain > largest[0][0]:
            heapq.heappush(largest, (-gain, index))
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


def gains(Y: FloatArray, known: FloatArray) -> FloatArray:
    """Return the hypervolume that each candidate alone would add; (k,).

    Args:
        Y: (k, m) the candidates.
        known: (n, m) merges that are there.
    """
    before = volume(known, _BELOW_NADIR)
    both = (volume(np.vstack([known, row]), _BELOW_NADIR) for row in Y)
    return np.array([after - before for after in both])


def gained(Y: FloatArray, known: FloatArray) -> float:
    """Return the share by which the hypervolume of Y (k, m) exceeds that of known."""
    before = volume(known, _BELOW_NADIR)
    return max(volume(Y, _BELOW_NADIR) / (before or 1.0) - 1, 0.0)


def volume(Y: FloatArray, worst: float, n_directions: int = _DIRECTIONS) -> float:
    """Return the hypervolume of Y (n, m) above ``worst`` on every task.

    Exact up to 5 tasks; beyond, approximated along a number of directions.
    """
    if not len(Y):
        return 0.0
    if Y.shape[1] == 1:
        return float(max(Y.max() - worst, 0))
    if Y.shape[1] <= _MOST_TASKS:
        return float(moocore.hypervolume(-Y, ref=-worst))
    return float(moocore.hv_approx(-Y, ref=-worst, nsamples=n_directions))
