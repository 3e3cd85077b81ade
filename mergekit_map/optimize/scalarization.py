"""Scalarisations: one point of a front, or the best merge of the whole box.

Notation: ``d`` coefficients, ``m`` tasks, ``Y`` (n, m) the metrics of n points, larger
is better. Each task is first scaled to [0, 1] between its worst (nadir) and best
(ideal) value over the front. The paper chooses by the preference-weighted sum over the
points of the front, of metrics as they are; all else is ours. Merges between the points
of a front may be better, or keep limits that none of the points keeps.

``allowed`` (n,) marks the points that may be chosen, by default all. The others still
take part in the scaling, so that a limit that the choice keeps anyway changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.surrogates.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    from_unit,
    is_constant,
    ranges,
    to_unit,
)

TIE = 1e-12  # scores and distances nearer than this are ties: they differ by rounding
# Share of the sum in the achievement function: enough to leave points that are only
# weakly better, too little to move the choice along a front.
_AUGMENTATION = 1e-4
Predict: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)
MIN_GAIN = 1e-4  # of the range, for which a further point is worth adding
_N_STARTS = 3  # points of the front
_STEP = 1e-5  # of the numerical derivatives
_AT_BOUND = 1e-9  # share of the box: so near is rounding
_LIMIT_MARGIN = 1e-7  # of the range, by which limits are kept
# Weight of the sum of all tasks, so that those without weight are not given away.
_TIE_BREAKER = 1e-5
_INFEASIBLE = 1e3  # puts all that miss a limit behind all that keep them
# The cost of missing a limit by the range of a task: more than is gained by it.
_SLACK_COST = 100.0


def select_point(
    Y: FloatArray,
    weights: FloatArray,
    allowed: BoolArray | None = None,
    *,
    achievement: bool = False,
) -> int:
    """Return the row of Y (n, m) that is best by a preference, tasks scaled to [0, 1].

    By the largest weighted sum, which never chooses points in a hollow of the front.
    With equal weights it is the *knee*: every other row loses at least what it gains,
    summed over the scaled metrics (Rachmawati and Srinivasan, 2009).

    By achievement it is the row with the smallest augmented weighted Chebyshev distance
    from the ideal point (Wierzbicki's function): the largest ``weight * (1 - scaled)``
    over the tasks, plus a small share of their sum. It reaches hollows, too.

    A task that is constant over Y contributes nothing. Ties go to the point nearest to
    the ideal point, then to the lowest index. Only ratios of the ``weights`` (m,)
    count, 0 or more and not all 0. Of ``allowed`` (n,) at least one is true.
    """
    scaled = _scale(Y)
    # Divided by the largest first, as the sum of huge weights may overflow.
    relative = weights / weights.max()
    shares = relative / relative.sum()
    if not achievement:
        return _best(scaled @ shares, scaled, allowed)
    gaps = shares * (1 - scaled)  # (n, m) to the ideal
    return _best(-gaps.max(axis=1) - _AUGMENTATION * gaps.sum(axis=1), scaled, allowed)


def nearest_to_limits(Y: FloatArray, lower: FloatArray) -> int:
    """Return the row of Y (n, m) that falls short of its limits by the smallest sum.

    The shortfall of a task counts as a share of its range over Y. ``lower`` (m,) is
    -inf where a task has no limit.
    """
    # A constant task misses alike at every point.
    shortfall = np.maximum(lower - Y, 0) / varying_range(Y)
    return _best(-shortfall.sum(axis=1), _scale(Y), None)


def farthest_point_subset(Y: FloatArray, k: int) -> IntArray:
    """Choose up to k rows of Y (n, m) that show the whole front, in the order chosen.

    First the best point of each task (of equal ones that with the largest sum of
    scaled metrics), then again and again the point farthest from all chosen so far.
    Fewer than k if Y has fewer rows that differ; fewer extremes if k is below m.
    """
    scaled = _scale(Y)
    sums = scaled.sum(axis=1)
    chosen: list[int] = []
    distances = np.full(len(Y), np.inf)  # to the nearest chosen point

    def choose(index: int) -> None:
        chosen.append(index)
        to_chosen = np.linalg.norm(scaled - scaled[index], axis=1)
        np.minimum(distances, to_chosen, out=distances)

    for task in scaled.T:
        best = np.where(task >= task.max() - TIE, sums, -np.inf).argmax()
        if len(chosen) < k and distances[best] > TIE:
            choose(int(best))
    while len(chosen) < k and distances.max() > TIE:
        choose(int(distances.argmax()))
    return np.array(chosen, dtype=np.int_)


def _best(score: FloatArray, scaled: FloatArray, allowed: BoolArray | None) -> int:
    """Find the allowed row of the largest score; of ties the nearest to the ideal."""
    if allowed is not None:
        score = np.where(allowed, score, -np.inf)
    tied = np.flatnonzero(score >= score.max() - TIE)
    distances = np.linalg.norm(1 - scaled[tied], axis=1)
    return int(tied[distances <= distances.min() + TIE][0])


def varying_range(Y: FloatArray) -> FloatArray:
    """Return the range of each task over Y (n, m); infinite if it is constant."""
    return np.where(is_constant(Y), np.inf, np.ptp(Y, axis=0))


def _scale(Y: FloatArray) -> FloatArray:
    """Map each task's nadir to 0 and its ideal to 1; a constant task to 1."""
    # At its ideal everywhere a task has no say in any comparison.
    return np.where(is_constant(Y), 1.0, (Y - Y.min(axis=0)) / ranges(Y))


@dataclass(frozen=True, eq=False)
class Scalarization:
    """A preference and limits, which make one objective of m tasks."""

    weights: FloatArray  # (m,) of the tasks, not negative, with the sum 1
    lower: FloatArray  # (m,) the limits, -inf where a task has none
    achievement: bool = False  # the worst weighted task counts, not the sum

    def score(self, scaled: FloatArray) -> FloatArray:
        """Rate scaled metrics (k, m), larger is better; (k,)."""
        tie_breaker = _TIE_BREAKER * scaled.sum(axis=1)
        if not self.achievement:
            return np.asarray(scaled @ self.weights + tie_breaker)
        return np.asarray(tie_breaker - (self.weights * (1 - scaled)).max(axis=1))


def scalarized_optimum(
    predict: Predict, bounds: FloatArray, X: FloatArray, scalarization: Scalarization
) -> FloatArray | None:
    """Return the merge of the box (d, 2) with the best score, if better than all X.

    Where no merge of the box keeps the limits, it is the one that misses them by the
    smallest sum of shares of the range. Returns its coefficients (d,), or None where
    the best point of the front is as good, up to ``MIN_GAIN``.
    """
    Y = predict(X)
    worst = Y.min(axis=0)
    width, constant = ranges(Y), is_constant(Y)
    limits = (scalarization.lower - worst) / width

    def scaled(U: FloatArray) -> FloatArray:
        S = (predict(from_unit(U, bounds)) - worst) / width
        return np.where(constant & ~np.isfinite(limits), 1.0, S)

    def score(U: FloatArray) -> FloatArray:
        S = scaled(U)
        shortfall = np.maximum(limits - S, 0).sum(axis=1)
        return np.where(shortfall > 0, -_INFEASIBLE - shortfall, scalarization.score(S))

    front = to_unit(X, bounds)
    front_scores = score(front)
    # One of the best points of a front is near the optimum of any scalarization.
    starts = front[np.argsort(-front_scores, kind="stable")[:_N_STARTS]]
    margin = limits + _LIMIT_MARGIN
    optima = np.array([_maximize(scaled, scalarization, margin, u) for u in starts])
    scores = score(optima)
    if scores.max() <= front_scores.max() + MIN_GAIN:
        return None
    return np.asarray(from_unit(optima[[scores.argmax()]], bounds)[0])


def _maximize(
    scaled: Predict, scalarization: Scalarization, limits: FloatArray, start: FloatArray
) -> FloatArray:
    """Improve a point (d,) of the unit box by SLSQP.

    Its variables are the coefficients, a slack for each limit, which costs more than
    all that could be gained, and for the achievement the largest weighted gap.
    """
    from scipy.optimize import minimize

    d = len(start)
    problem = partial(_smooth_problem, scaled, scalarization, limits)

    @lru_cache(maxsize=1)  # SLSQP evaluates objective and constraints in turn
    def linearization(*variables: float) -> FloatArray:  # arrays have no hash
        return _linearize(problem, np.array(variables), d)

    def objective(variables: FloatArray) -> tuple[float, FloatArray]:
        value, *gradient = linearization(*variables)[0]
        return float(value), np.array(gradient)

    # Typed by hand: SciPy's stubs do not know the "jac" of a constraint.
    constraints: Any = {
        "type": "ineq",
        "fun": lambda variables: linearization(*variables)[1:, 0].copy(),
        "jac": lambda variables: linearization(*variables)[1:, 1:].copy(),
    }
    S = scaled(start[None])[0]
    auxiliary = np.maximum(limits - S, 0)[np.isfinite(limits)]
    # A start that keeps a limit must not be bought off it: it gets no slack.
    upper = np.where(auxiliary > 0, np.inf, 0.0)
    if scalarization.achievement:
        auxiliary = np.append(auxiliary, (scalarization.weights * (1 - S)).max())
        upper = np.append(upper, np.inf)
    # SLSQP warns of a step that left the box, and clips it; so do we.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        result = minimize(
            objective,
            np.concatenate([start, auxiliary]),
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * d + [(0.0, most) for most in upper.tolist()],
            constraints=constraints if len(auxiliary) else (),
            options={"ftol": 1e-12, "maxiter": 100},
        )
    u = result.x[:d]
    nearest_bound = u.round()
    at_bound = np.abs(u - nearest_bound) <= _AT_BOUND
    return np.asarray(np.where(at_bound, nearest_bound, u).clip(0, 1))


def _smooth_problem(
    scaled: Predict, scalarization: Scalarization, limits: FloatArray, rows: FloatArray
) -> FloatArray:
    """Return cost and constraints >= 0 at ``_maximize``'s variables; (k, 1 + r)."""
    limited = np.flatnonzero(np.isfinite(limits))
    d = rows.shape[1] - len(limited) - scalarization.achievement
    S = scaled(rows[:, :d])
    slacks = rows[:, d : d + len(limited)]
    within_limits = S[:, limited] - limits[limited] + slacks
    cost = _SLACK_COST * slacks.sum(axis=1) - _TIE_BREAKER * S.sum(axis=1)
    if not scalarization.achievement:
        return np.column_stack([cost - S @ scalarization.weights, within_limits])
    largest_gap = rows[:, [-1]]
    within_gap = largest_gap - scalarization.weights * (1 - S)
    return np.column_stack([cost + largest_gap[:, 0], within_limits, within_gap])


def _linearize(problem: Predict, variables: FloatArray, d: int) -> FloatArray:
    """Return values and gradients, by central differences; (1 + r, 1 + variables)."""
    n = len(variables)
    steps = _STEP * np.eye(n)
    stencil = variables + np.vstack([np.zeros((1, n)), steps, -steps])
    stencil[:, :d] = np.clip(stencil[:, :d], 0, 1)
    values = problem(stencil)
    up, down = slice(1, 1 + n), slice(1 + n, None)
    widths = np.diag(stencil[up] - stencil[down])
    return np.column_stack([values[0], (values[up] - values[down]).T / widths])
