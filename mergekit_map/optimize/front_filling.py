"""Filling of an approximate front: Newton steps onto it, and points in its gaps.

Notation: ``n`` points, ``d`` coefficients on the unit box, ``m`` tasks, ``scores`` maps
(k, d) to (k, m), each task in units of its own range, larger is better and smooth. The
paper stops at the genetic algorithm, which comes near the front but seldom onto it.

A step is Newton's for vector optimization (Fliege, Grana Drummond and Svaiter, 2009):
along a weighted sum of the tasks, with weights for which all of them gain. On the front
there is no such step. A point between two of the front is near to it, and a few steps
move it there. The worth of a point is the hypervolume that it adds.
"""

from __future__ import annotations

import heapq

import moocore
import numpy as np

from mergekit_map.optimize.scalarization import Predict, farthest_point_subset
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray, ranges

STEP = 1e-3  # of the numerical derivatives, which are exact for quadratics
_STEP_LENGTHS = np.array([1.0, 0.5, 0.2, 0.05, 0.01]).reshape(-1, 1, 1)  # all tried
_MAX_STEP = 0.5  # on any axis of the box
_MIN_GAIN = 1e-12  # a point that gains less has arrived
# A task may lose this share of what all gain. Otherwise no point would move where one
# task is flat, whatever the others can gain there.
_SLACK = 1e-3
# Curvatures are at least this share of the largest. Smaller ones make steps too long.
_MIN_CURVATURE = 1e-6
_N_PASSES = 6  # of _newton_steps
_N_EXCHANGES = 60  # of weight between two tasks, which is plenty for a dozen
# Hypervolumes reach a little below the nadir, so that the ends of a front count.
_REFERENCE = -0.1
# Exact volumes take time exponential in the tasks: 1000 points took 0.01 s with 5, and
# 1.5 s with 6. With more tasks they are approximated, along so many directions.
_MAX_EXACT_TASKS = 5
_N_DIRECTIONS = 2**14
_MAX_SUBSET_TASKS = 4  # whose hypervolume takes a fraction of a millisecond
# Metrics that differ by less than this fraction of a task's range are equal.
SAME_METRIC = 1e-9
_N_ROUNDS = 2
_N_CHILDREN = 2  # of each point and round
_N_KEPT = 3  # candidates, for each point of the front
_N_STEPS = 2  # from between two points of the front back onto it
_N_LAST_STEPS = 15


def pareto_newton(
    scores: Predict,
    points: FloatArray,
    n_steps: int,
    preferences: FloatArray | None = None,
) -> FloatArray:
    """Improve points (n, d) until no task can gain without another losing.

    Every step gains in total, and all but nothing is lost on any task, so that points
    keep their places along the front, convex or not. With preferences (n, m) each point
    climbs to a local maximum of its own ``scores @ preference`` instead.
    """
    slack = _SLACK if preferences is None else 0.0
    points = points.copy()
    values = scores(points)
    active = np.arange(len(points))  # indices of the points that still improve
    for _ in range(n_steps):
        if not len(active):
            break
        gradients, hessians = _derivatives(scores, points[active])
        gradients += slack * gradients.sum(axis=1, keepdims=True)
        hessians += slack * hessians.sum(axis=1, keepdims=True)
        fixed = None if preferences is None else preferences[active]
        steps, weights = _newton_steps(gradients, hessians, points[active], fixed)
        # Shapes: (lengths, active points, d), then (lengths, active points, m).
        candidates = np.clip(points[active] + _STEP_LENGTHS * steps, 0, 1)
        new_values = scores(candidates.reshape(-1, points.shape[1]))
        gains = new_values.reshape(*candidates.shape[:2], -1) - values[active]
        total_gains = (gains * (weights + slack)).sum(axis=2)
        improved = np.flatnonzero(total_gains.max(axis=0) > _MIN_GAIN)
        best_length = total_gains.argmax(axis=0)[improved]
        active = active[improved]
        points[active] = candidates[best_length, improved]
        values[active] += gains[best_length, improved]
    return points


def _derivatives(scores: Predict, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gradients (n, m, d) and Hessians (n, m, d, d), numerically."""
    n, d = points.shape
    rows, columns = np.triu_indices(d, 1)
    unit = STEP * np.eye(d)
    stencil = np.vstack([np.zeros((1, d)), unit, -unit, unit[rows] + unit[columns]])
    centers = np.clip(points, STEP, 1 - STEP)
    neighbors = (centers[:, None] + stencil).reshape(-1, d)
    values = scores(neighbors).reshape(n, len(stencil), -1)  # (n, stencil, m)
    center, up, down, both_up = np.split(values, [1, 1 + d, 1 + 2 * d], axis=1)
    squares = (up - 2 * center + down) / STEP**2
    products = (both_up - up[:, rows] - up[:, columns] + center) / STEP**2
    hessians = np.empty((n, values.shape[2], d, d))
    axes = np.arange(d)
    hessians[..., axes, axes] = squares.swapaxes(1, 2)
    hessians[..., rows, columns] = products.swapaxes(1, 2)
    hessians[..., columns, rows] = hessians[..., rows, columns]
    gradients = ((up - down) / (2 * STEP)).swapaxes(1, 2)  # at the centers
    return gradients + np.einsum("nmij,nj->nmi", hessians, points - centers), hessians


def _newton_steps(
    gradients: FloatArray,
    hessians: FloatArray,
    points: FloatArray,
    fixed_weights: FloatArray | None,
) -> tuple[FloatArray, FloatArray]:
    """Find the Newton step (n, d) of a weighted sum of the tasks, inside the box.

    With the gradient g and the size H of the Hessian of the weighted sum, it maximizes
    ``g @ step - step @ H @ step / 2``. By an active set: coefficients whose step would
    leave the box end at its bound. Weights (n, m) are those of ``_balanced_weights``,
    unless fixed. Returns them, too. Step, weights, bounds and H depend on one another,
    so they are improved in turns; ``pareto_newton`` shortens steps that did not settle.
    """
    n, d = points.shape
    weights = np.zeros(gradients.shape[:2]) if fixed_weights is None else fixed_weights
    H = np.broadcast_to(np.eye(d), (n, d, d))
    at_bound = np.full((n, d), fill_value=False)
    bound_steps = np.zeros((n, d))  # to the bound; 0 where a coefficient is free
    for _ in range(_N_PASSES):
        task_steps, constant_step = _solve_free(H, gradients, at_bound, bound_steps)
        if fixed_weights is None:
            constant_gains = np.einsum("nmd,nd->nm", gradients, constant_step)
            weights = _balanced_weights(gradients @ task_steps, constant_gains)
        steps = constant_step + np.einsum("ndm,nm->nd", task_steps, weights)
        # The next active set: free again is what a slope turns into the box.
        slopes = np.einsum("nm,nmi->ni", weights, gradients)
        slopes -= np.einsum("nij,nj->ni", H, steps)
        unclipped = steps + np.where(at_bound, slopes, 0)
        clipped = np.clip(unclipped, -points, 1 - points)
        at_bound = clipped != unclipped
        bound_steps = np.where(at_bound, clipped, 0)
        H = _positive_definite(np.einsum("nm,nmij->nij", weights, hessians))
    steps = np.clip(points + steps, 0, 1) - points
    longest = np.abs(steps).max(axis=1, keepdims=True)
    return steps * (_MAX_STEP / np.maximum(longest, _MAX_STEP)), weights


def _solve_free(
    H: FloatArray, gradients: FloatArray, at_bound: BoolArray, bound_steps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return task_steps (n, d, m), which weights multiply, and constant_step (n, d)."""
    # Rows of free coefficients are H @ step = gradient, those of others step = bound.
    free = np.where(at_bound, 0.0, 1.0)
    both_free = free[:, :, None] * free[:, None, :]
    matrix = H * both_free + np.eye(free.shape[1]) * at_bound[:, :, None]
    constant = bound_steps - free * np.einsum("nij,nj->ni", H, bound_steps)
    right_sides = np.concatenate([gradients * free[:, None], constant[:, None]], axis=1)
    solutions = np.linalg.solve(matrix, right_sides.swapaxes(1, 2))  # (n, d, m + 1)
    return solutions[:, :, :-1], solutions[:, :, -1]


def _positive_definite(hessians: FloatArray) -> FloatArray:
    """Make Hessians (n, d, d) positive definite, by the sizes of their curvatures."""
    curvatures, axes = np.linalg.eigh(hessians)
    sizes = np.abs(curvatures)
    sizes = np.maximum(sizes, _MIN_CURVATURE * sizes.max(axis=1, keepdims=True) + 1e-9)
    return np.asarray((axes * sizes[:, None, :]) @ axes.swapaxes(1, 2))


def _balanced_weights(products: FloatArray, offsets: FloatArray) -> FloatArray:
    """Find the weights (n, m), of sum 1, whose step has the largest smallest gain.

    As in SMO, two tasks exchange weight again and again: the one that gains least takes
    it from the one that gains most, until both gain the same. ``products`` (n, m, m),
    symmetric, are what each task gains from the step of each other, ``offsets`` (n, m)
    what each gains without any weight.
    """
    n, m, _ = products.shape
    rows = np.arange(n)
    weights = np.full((n, m), 1 / m)
    gains = products.sum(axis=2) / m + offsets
    for _ in range(_N_EXCHANGES if m > 1 else 0):
        low = gains.argmin(axis=1)
        high = np.where(weights > 0, gains, -np.inf).argmax(axis=1)
        of_low = products[rows, low]
        of_high = products[rows, high]
        curvature = of_low[rows, low] + of_high[rows, high] - 2 * of_low[rows, high]
        step = (gains[rows, high] - gains[rows, low]) / np.maximum(curvature, 1e-300)
        exchanged = np.minimum(step, weights[rows, high])
        if not exchanged.any():
            break  # as every exchange from here on would be
        weights[rows, low] += exchanged
        weights[rows, high] -= exchanged
        gains += exchanged[:, None] * (of_low - of_high)
    return weights


def fill_front(
    scores: Predict, points: FloatArray, n_points: int, rng: np.random.Generator
) -> FloatArray:
    """Spread up to n_points over the front near points (n, d), best of tasks first."""
    improved = pareto_newton(scores, points, _N_LAST_STEPS)
    front = _non_dominated_points(scores, np.vstack([points, improved]))
    for _ in range(_N_ROUNDS):
        children = _children(scores, front, _N_CHILDREN * n_points, rng)
        children = pareto_newton(scores, children, _N_STEPS)
        front = _non_dominated_points(scores, np.vstack([front, children]))
        front = front[farthest_point_subset(scores(front), _N_KEPT * n_points)]
    front = front[_hypervolume_subset(scores(front), n_points)]
    return pareto_newton(scores, front, _N_LAST_STEPS)


def non_dominated(Y: FloatArray) -> BoolArray:
    """Mark the rows of Y (n, m) that no other row dominates, larger is better.

    A row dominates another if it is nowhere smaller and somewhere larger, so equal rows
    are all kept. A row with NaN or infinity counts as dominated and dominates nothing.
    """
    rows = np.flatnonzero(np.isfinite(Y).all(axis=1))
    mask: BoolArray = np.full(len(Y), fill_value=False)
    if len(rows):
        mask[rows] = moocore.is_nondominated(Y[rows], maximise=True, keep_weakly=True)
    return mask


def quantized(scores: FloatArray) -> FloatArray:
    """Round scores to whole units of ``SAME_METRIC``."""
    return np.round(scores / SAME_METRIC)


def _non_dominated_points(scores: Predict, points: FloatArray) -> FloatArray:
    """Keep the non-dominated points (n, d), the first of equal ones."""
    Y = quantized(scores(points))
    mask = moocore.is_nondominated(Y, maximise=True, keep_weakly=False)
    return np.asarray(points[mask])


def _hypervolume_subset(Y: FloatArray, k: int) -> IntArray:
    """Choose k rows of Y (n, m) that show the front, and dominate nearly all of it.

    A third of them is spread evenly, the ends first. Of the others that one is next
    which adds the largest hypervolume. The greedy choice is lazy: gains only shrink as
    rows join, so a gain that is still the largest when computed again is the largest.
    """
    n, m = Y.shape
    if n <= k or m > _MAX_SUBSET_TASKS:
        return farthest_point_subset(Y, k)
    scaled = (Y - Y.min(axis=0)) / ranges(Y)
    chosen = [int(i) for i in farthest_point_subset(Y, max(k // 3, min(k, m)))]
    candidates = sorted(set(range(n)) - set(chosen))
    covered = hypervolume(scaled[chosen], _REFERENCE)
    gains = improvements(scaled[candidates], scaled[chosen]).tolist()
    queue = [(-gain, i) for gain, i in zip(gains, candidates, strict=True)]
    heapq.heapify(queue)
    while len(chosen) < k:
        candidate = heapq.heappop(queue)[1]
        gain = hypervolume(scaled[[*chosen, candidate]], _REFERENCE) - covered
        if queue and -gain > queue[0][0]:
            heapq.heappush(queue, (-gain, candidate))
        else:
            chosen.append(candidate)
            covered += gain
    return np.array(chosen, dtype=np.int_)


def _children(
    scores: Predict, points: FloatArray, n: int, rng: np.random.Generator
) -> FloatArray:
    """Draw n points between, and beyond, neighbors on a front; (n, d)."""
    Y = scores(points)
    parents = np.resize(farthest_point_subset(Y, n), n)
    distances = np.linalg.norm(Y[parents][:, None] - Y, axis=2)
    neighbors = np.argsort(distances, axis=1)[:, : 1 + 2 * Y.shape[1]]
    partners = neighbors[np.arange(n), rng.integers(neighbors.shape[1], size=n)]
    steps = rng.uniform(-0.5, 1.5, size=(n, 1)) * (points[partners] - points[parents])
    return np.clip(points[parents] + steps, 0, 1)


def improvements(Y: FloatArray, measured: FloatArray) -> FloatArray:
    """Return the hypervolume that each row of Y (k, m) alone adds to measured ones."""
    before = hypervolume(measured, _REFERENCE)
    joined = (np.vstack([measured, candidate]) for candidate in Y)
    return np.array([hypervolume(rows, _REFERENCE) - before for rows in joined])


def relative_gain(
    Y: FloatArray, measured: FloatArray, reference: float = _REFERENCE
) -> float:
    """Return the relative gain in hypervolume, at least 0; 0 if measured has none."""
    before = hypervolume(measured, reference)
    return max(hypervolume(Y, reference) / before - 1, 0.0) if before else 0.0


def hypervolume(
    Y: FloatArray, reference: float, n_directions: int = _N_DIRECTIONS
) -> float:
    """Return the hypervolume of Y (n, m) above ``reference`` on every task."""
    if Y.shape[1] <= _MAX_EXACT_TASKS:
        return float(moocore.hypervolume(-Y, ref=-reference))
    return float(moocore.hv_approx(-Y, ref=-reference, nsamples=n_directions))
