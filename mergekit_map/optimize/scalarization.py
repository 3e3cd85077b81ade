"""Scalarisations: one point of a front, or the best merge of the whole box.

Notation: ``d`` coefficients, ``m`` tasks, ``Y`` (n, m) the metrics of n points, larger
is better. Tasks have different units, so each is first scaled to [0, 1] between its
worst (nadir) and best (ideal) value over the front. The paper has one way to choose,
the preference-weighted sum over the points of the front, and takes the metrics as they
are; the other ways are ours. Between the points of a front there are better merges,
more so with more tasks, and some limits are kept by none of its points but by a merge
between them. Nothing here costs an evaluation.

``allowed`` (n,) says which points may be chosen, by default all. The others still take
part in the scaling, so that a limit that the choice keeps anyway changes nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from mergekit_map.surrogates.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    from_unit,
    to_unit,
)
from mergekit_map.types import SIGNIFICANT

# Scores and distances nearer than this are ties: they differ by rounding.
TIE = 1e-12
# Share of the sum in the achievement function: enough to leave points that are only
# weakly better, too little to move the choice along a front.
_AUGMENTATION = 1e-4
Predict: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)
Kind = Literal["one point", "within noise", "one best", "trade-off"]
WORTH_A_POINT = 1e-4  # of the range: what a further point must gain
_N_STARTS = 3  # points of the front
_STEP = 1e-5  # of the numerical derivatives
_AT_A_BOUND = 1e-9  # share of the box: so near is rounding
_MARGIN = 1e-7  # of the range, by which limits are kept
# What counts of the tasks that the wish leaves free, so that none is given away.
_SECOND_THOUGHT = 1e-5
_OUTSIDE = 1e3  # puts all that miss a limit behind all that keep them
# The cost of missing a limit by the range of a task: more than is gained by it.
_MISSED = 100.0


def select_point(
    Y: FloatArray,
    weights: FloatArray,
    allowed: BoolArray | None = None,
    *,
    achievement: bool = False,
) -> int:
    """Return the row that is best by a preference, each task scaled to [0, 1].

    By the largest weighted sum. With equal weights it is the *knee*: the row from which
    every other one loses at least what it gains, in totals over the scaled metrics
    (Rachmawati and Srinivasan, 2009). Of two tasks it is farthest beyond the chord
    between the front's ends. Points in a hollow of the front are never chosen.

    By achievement it is the row that on its worst task is nearest to the ideal:
    Wierzbicki's function with the ideal point as its reference, also known as the
    augmented weighted Chebyshev distance. It is the largest ``weight * (1 - scaled)``
    over the tasks, plus a small share of their sum. For some weights any point of a
    front is the choice, in its hollows too.

    A task that is constant over Y contributes nothing. Ties go to the point nearest to
    the ideal point, then to the lowest index.

    Args:
        Y: (n, m) finite metrics of at least one point.
        weights: (m,) the preference, 0 or more and not all 0; only ratios count.
        allowed: (n,) which rows may be chosen, at least one.
        achievement: Whether the worst task decides, not the sum.
    """
    scaled = _scale(Y)
    # Divided by the largest first, as the sum of huge weights may overflow.
    shares = weights / weights.max()
    shares = shares / shares.sum()
    if not achievement:
        return _best(scaled @ shares, scaled, allowed)
    missing = shares * (1 - scaled)
    worst = missing.max(axis=1) + _AUGMENTATION * missing.sum(axis=1)
    return _best(-worst, scaled, allowed)


def nearest_to_limits(Y: FloatArray, lower: FloatArray) -> int:
    """Return the row that falls short of its limits by the smallest sum of shares.

    The shortfall of a task counts as a share of its range over Y.

    Args:
        Y: (n, m) finite metrics of at least one point.
        lower: (m,) the limits, -inf where a task has none.
    """
    # A constant task misses alike at every point.
    short = np.maximum(lower - Y, 0) / varying_range(Y)
    return _best(-short.sum(axis=1), _scale(Y), None)


def spread(Y: FloatArray, k: int) -> IntArray:
    """Choose up to k rows that show the whole front, in the order chosen.

    First the best point of each task (of equal ones that with the largest sum of
    scaled metrics), then again and again the point farthest from all chosen so far.
    Fewer than k if Y has fewer rows that differ; fewer extremes if k is below m.

    Args:
        Y: (n, m) finite metrics of at least one point.
        k: How many rows at most, at least 0.
    """
    scaled = _scale(Y)
    total = scaled.sum(axis=1)
    chosen: list[int] = []
    nearest = np.full(len(Y), np.inf)  # distance to the nearest chosen point

    def choose(index: int) -> None:
        chosen.append(index)
        np.minimum(nearest, np.linalg.norm(scaled - scaled[index], axis=1), out=nearest)

    for task in scaled.T:
        best = np.where(task >= task.max() - TIE, total, -np.inf)
        if len(chosen) < k and nearest[best.argmax()] > TIE:
            choose(int(best.argmax()))
    while len(chosen) < k and nearest.max() > TIE:
        choose(int(nearest.argmax()))
    return np.array(chosen, dtype=np.int_)


def _best(score: FloatArray, scaled: FloatArray, allowed: BoolArray | None) -> int:
    """Find the allowed row of the largest score; of ties the nearest to the ideal."""
    if allowed is not None:
        score = np.where(allowed, score, -np.inf)
    tied = np.flatnonzero(score >= score.max() - TIE)
    distance = np.linalg.norm(1 - scaled[tied], axis=1)
    return int(tied[np.argmax(distance <= distance.min() + TIE)])


def varying_range(Y: FloatArray) -> FloatArray:
    """Return the range of each task over Y (n, m); infinite if it is only rounding."""
    width = np.ptp(Y, axis=0)
    return np.where(width <= TIE * np.abs(Y).max(axis=0), np.inf, width)


def _scale(Y: FloatArray) -> FloatArray:
    """Map each task's nadir to 0 and its ideal to 1; a constant task to 1."""
    width = varying_range(Y)
    # At its ideal everywhere a task has no say in any comparison.
    return np.where(np.isinf(width), 1.0, (Y - Y.min(axis=0)) / width)


@dataclass(frozen=True)
class TradeOff:
    """Whether the points of a front trade tasks against one another.

    ``kind`` is "one point" where all points are equal, "within noise" where every point
    is within noise of the best on every task, "one best" where only some points are,
    and "trade-off" where none is.
    """

    kind: Kind
    best: int | None  # the point to take; None where that is a matter of preference


def detect_tradeoff(Y: FloatArray, stderr: FloatArray) -> TradeOff:
    """Return whether a front is a trade-off, and which point to take if it is not.

    Of the points that will do, that with the largest equally weighted sum is taken. A
    difference whose noise is unknown counts as real.

    Args:
        Y: (k, m) finite metrics of at least one point.
        stderr: (k, m) standard errors, 0 or more; NaN where unknown.
    """
    equal = np.ones(Y.shape[1])
    balanced = select_point(Y, equal)
    best, task = Y.argmax(axis=0), np.arange(Y.shape[1])
    behind = Y[best, task] - Y
    noise = SIGNIFICANT * stderr_of_difference(stderr[best, task], stderr)
    rounding = TIE * np.abs(Y).max(axis=0)
    will_do = (behind <= np.fmax(noise, rounding)).all(axis=1)  # fmax passes over NaN
    if (behind <= rounding).all():
        return TradeOff("one point", balanced)
    if will_do.all():
        return TradeOff("within noise", balanced)
    if will_do.any():
        return TradeOff("one best", select_point(Y, equal, will_do))
    return TradeOff("trade-off", None)


def stderr_of_difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Combine two standard errors as if independent; NaN where neither is known.

    Where one is known, the difference has at least the noise of that one. Two merges
    measured on the same items err together: where their records can be compared, that
    is better. Predictions of one surrogate may err together or against one another; the
    front does not carry their covariance.
    """
    known = np.hypot(np.nan_to_num(first), np.nan_to_num(second))
    return np.where(np.isnan(first) & np.isnan(second), np.nan, known)


@dataclass(frozen=True, eq=False)
class Wish:
    """A preference and limits that a merge is chosen by."""

    weights: FloatArray  # (m,) of the tasks, not negative, with the sum 1
    lower: FloatArray  # (m,) the limits, -inf where a task has none
    achievement: bool = False  # the worst weighted task counts, not the sum

    def score(self, scaled: FloatArray) -> FloatArray:
        """Rate scaled metrics (k, m), larger is better; (k,)."""
        free = _SECOND_THOUGHT * scaled.sum(axis=1)
        if not self.achievement:
            return np.asarray(scaled @ self.weights + free)
        worst = (self.weights * (1 - scaled)).max(axis=1)
        return np.asarray(free - worst)


def best_merge(
    predict: Predict, bounds: FloatArray, X: FloatArray, wish: Wish
) -> FloatArray | None:
    """Return a merge of the box (d, 2) that fulfils a wish better than all points X.

    Where no merge of the box keeps the limits, it is the one that misses them by the
    smallest sum of shares of the range. Returns its coefficients (d,), or None where
    the best point of the front is as good, up to ``WORTH_A_POINT``.
    """
    Y = predict(X)
    worst, width = Y.min(axis=0), varying_range(Y)
    constant = np.isinf(width)
    width = np.where(constant, 1.0, width)
    limits = (wish.lower - worst) / width

    def scaled(U: FloatArray) -> FloatArray:
        S = (predict(from_unit(U, bounds)) - worst) / width
        return np.where(constant & ~np.isfinite(limits), 1.0, S)

    def rank(U: FloatArray) -> FloatArray:
        S = scaled(U)
        missing = np.maximum(limits - S, 0).sum(axis=1)
        return np.where(missing > 0, -_OUTSIDE - missing, wish.score(S))

    points = to_unit(X, bounds)
    known = rank(points)
    # One of the best points of a front is near the best merge of any wish.
    starts = points[np.argsort(-known, kind="stable")[:_N_STARTS]]
    tops = np.array([_climb(scaled, wish, limits + _MARGIN, one) for one in starts])
    found = rank(tops)
    if found.max() <= known.max() + WORTH_A_POINT:
        return None
    return np.asarray(from_unit(tops[[found.argmax()]], bounds)[0])


def _climb(
    scaled: Predict, wish: Wish, limits: FloatArray, start: FloatArray
) -> FloatArray:
    """Improve a point (d,) of the unit box by SLSQP.

    Beside the coefficients it varies what each limit is missed by, which costs more
    than all that could be gained, and what the worst weighted task misses.
    """
    from scipy.optimize import minimize

    d, problem = len(start), _problem_of(scaled, wish, limits)

    @lru_cache(maxsize=1)  # cost and constraints ask in turn
    def linearised(z: bytes) -> FloatArray:
        return _linearise(problem, np.frombuffer(z), d)

    def at(z: FloatArray) -> FloatArray:
        return linearised(z.tobytes()).copy()  # SLSQP changes what it gets

    def cost(z: FloatArray) -> tuple[float, FloatArray]:
        value, *slopes = at(z)[0]
        return float(value), np.array(slopes)

    S = scaled(start[None])[0]
    further = np.maximum(limits - S, 0)[np.isfinite(limits)]
    # A start that keeps a limit must not be bought off it.
    most = np.where(further > 0, np.inf, 0.0)
    if wish.achievement:
        further = np.append(further, (wish.weights * (1 - S)).max())
        most = np.append(most, np.inf)
    # Typed by hand: SciPy's stubs do not know the "jac" of a constraint.
    kept: Any = {
        "type": "ineq",
        "fun": lambda z: at(z)[1:, 0],
        "jac": lambda z: at(z)[1:, 1:],
    }
    # SLSQP warns of a step that left the box, and clips it; so do we.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = minimize(
            cost,
            np.concatenate([start, further]),
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * d + [(0.0, one) for one in most.tolist()],
            constraints=kept if len(further) else (),
            options={"ftol": 1e-12, "maxiter": 100},
        )
    u, end = found.x[:d], found.x[:d].round()  # what is nearly at it is the same merge
    return np.asarray(np.where(np.abs(u - end) <= _AT_A_BOUND, end, u).clip(0, 1))


def _problem_of(scaled: Predict, wish: Wish, limits: FloatArray) -> Predict:
    """Return cost, and what must not be negative, as a function; (k, 1 + r).

    Its rows are coefficients, by what each limit is missed, and for the achievement
    what the worst weighted task misses.
    """
    limited = np.flatnonzero(np.isfinite(limits))

    def problem(Z: FloatArray) -> FloatArray:
        d = Z.shape[1] - len(limited) - wish.achievement
        S, missed = scaled(Z[:, :d]), Z[:, d : d + len(limited)]
        kept = S[:, limited] - limits[limited] + missed
        lost = _MISSED * missed.sum(axis=1) - _SECOND_THOUGHT * S.sum(axis=1)
        if not wish.achievement:
            return np.column_stack([lost - S @ wish.weights, kept])
        worst, gaps = Z[:, -1], wish.weights * (1 - S)
        return np.column_stack([lost + worst, kept, worst[:, None] - gaps])

    return problem


def _linearise(problem: Predict, z: FloatArray, d: int) -> FloatArray:
    """Return a problem's values (r,) and slopes at z, whose first d are in the box."""
    steps = _STEP * np.eye(len(z))
    Z = z + np.vstack([0 * steps[:1], steps, -steps])
    Z[:, :d] = np.clip(Z[:, :d], 0, 1)
    up, down = slice(1, 1 + len(z)), slice(1 + len(z), None)
    values, widths = problem(Z), np.diag(Z[up] - Z[down])
    return np.column_stack([values[0], (values[up] - values[down]).T / widths])
