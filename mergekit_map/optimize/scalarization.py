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
from functools import cached_property, lru_cache
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
_MARGIN = 1e-7  # of the range, by which limits are kept
# What counts of the tasks that the wish leaves free, so that none is given away.
_SECOND_THOUGHT = 1e-5
_OUTSIDE = 1e3  # puts all that miss a limit behind all that keep them


def select_by_preference(
    Y: FloatArray, weights: FloatArray, allowed: BoolArray | None = None
) -> int:
    """Return the row with the largest preference-weighted sum of the scaled metrics.

    With equal weights it is the *knee*: the row from which every other one loses at
    least what it gains, in totals over the scaled metrics (Rachmawati and Srinivasan,
    2009). Of two tasks it is farthest beyond the chord between the front's ends.

    A task that is constant over Y contributes nothing. Ties go to the point nearest to
    the ideal point, then to the lowest index. Points in a hollow of the front are never
    chosen, whatever the weights: see ``select_by_achievement``.

    Args:
        Y: (n, m) finite metrics of at least one point.
        weights: (m,) the preference, 0 or more and not all 0; only ratios count.
        allowed: (n,) which rows may be chosen, at least one.
    """
    scaled = _scale(Y)
    return _best(scaled @ _shares(weights), scaled, allowed)


def select_by_achievement(
    Y: FloatArray, weights: FloatArray, allowed: BoolArray | None = None
) -> int:
    """Return the row that on its worst task is nearest to the ideal, weighted.

    Wierzbicki's achievement function with the ideal point as its reference, also known
    as the augmented weighted Chebyshev distance: the largest ``weight * (1 - scaled)``
    over the tasks, plus a small share of their sum. For some weights any point of a
    front is the choice, in its hollows too. Arguments and ties as for
    ``select_by_preference``.
    """
    scaled = _scale(Y)
    missing = _shares(weights) * (1 - scaled)
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


def _shares(weights: FloatArray) -> FloatArray:
    """Divide a preference by its sum."""
    # Divided by the largest first, as the sum of huge weights may overflow.
    relative = weights / weights.max()
    return np.asarray(relative / relative.sum())


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
    balanced = select_by_preference(Y, equal)
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
        return TradeOff("one best", select_by_preference(Y, equal, will_do))
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

    problem = _Problem(scaled, wish, limits)
    best_known = problem.rank(problem.scaled(to_unit(X, bounds))).max(axis=0)
    found = problem.solve(to_unit(X, bounds))
    gain = problem.rank(scaled(found[None]))[0] - best_known
    return from_unit(found[None], bounds)[0] if gain > WORTH_A_POINT else None


@dataclass(frozen=True, eq=False)
class _Problem:
    """A wish on the unit box, in scaled metrics."""

    scaled: Predict
    wish: Wish
    limits: FloatArray  # (m,), scaled

    def rank(self, S: FloatArray) -> FloatArray:
        """Order scaled metrics (k, m): those within the limits, then by shortfall."""
        missing = np.maximum(self.limits - S, 0).sum(axis=1)
        return np.where(missing > 0, -_OUTSIDE - missing, self.wish.score(S))

    def solve(self, candidates: FloatArray) -> FloatArray:
        """Find the best point, from the best of the candidates (k, d).

        These are points of the front, of which one is near the best merge of any wish.
        """
        rank = self.rank(self.scaled(candidates))
        starts = candidates[np.argsort(-rank, kind="stable")[:_N_STARTS]]
        if np.isfinite(self.limits).any() and rank.max() <= -_OUTSIDE:
            starts = np.array([self._approach(start) for start in starts])
        tops = np.array([self._climb(start) for start in starts])
        both = np.vstack([starts, tops])
        return np.asarray(both[self.rank(self.scaled(both)).argmax()])

    def _approach(self, start: FloatArray) -> FloatArray:
        """Come as near to the limits as possible."""
        n = len(self._limited)
        first = np.maximum(self._floor - self.scaled(start[None])[0], 0)[self._limited]
        extra = (np.ones(n), np.eye(n), np.zeros(len(self.limits)))
        return self._slsqp(start, first, self._within, extra)

    def _climb(self, start: FloatArray) -> FloatArray:
        """Improve the wish's score within the limits."""
        n, m = len(self._limited), len(self.limits)
        free = np.full(m, _SECOND_THOUGHT)
        weights = self.wish.weights
        if not self.wish.achievement:
            extra = (np.empty(0), np.empty((n, 0)), weights + free)
            return self._slsqp(start, np.empty(0), self._within, extra)

        def all_missing(values: FloatArray, slopes: FloatArray) -> Any:
            kept, steep = self._within(values, slopes)
            near = -weights * (1 - values)  # plus the largest of them, >= 0
            rows = np.concatenate([kept, near])
            return rows, np.vstack([steep, weights[:, None] * slopes])

        largest = (weights * (1 - self.scaled(start[None])[0])).max(keepdims=True)
        enters = np.concatenate([np.zeros(n), np.ones(m)])[:, None]
        return self._slsqp(start, largest, all_missing, (np.ones(1), enters, free))

    @cached_property
    def _limited(self) -> IntArray:
        return np.flatnonzero(np.isfinite(self.limits))

    @property
    def _floor(self) -> FloatArray:
        return self.limits + _MARGIN

    def _within(self, values: FloatArray, slopes: FloatArray) -> Any:
        """Return how far limited tasks (m,) are within the limits, and the slopes."""
        rows = self._limited
        return values[rows] - self._floor[rows], slopes[rows]

    def _slsqp(
        self,
        start: FloatArray,
        first: FloatArray,
        constrain: Callable[[FloatArray, FloatArray], Any],
        extra: tuple[FloatArray, FloatArray, FloatArray],
    ) -> FloatArray:
        """Minimise ``costs @ v - gains @ scaled(u)``, ``rows(u) + enters @ v >= 0``.

        Args:
            start: u (d,) to start from.
            first: v (e,) further numbers, kept at least 0.
            constrain: Returns the rows and their slopes, given values and slopes.
            extra: costs (e,), enters (rows, e), gains (m,).
        """
        from scipy.optimize import minimize

        d = len(start)
        costs, enters, gains = extra

        @lru_cache(maxsize=1)  # objective and constraints ask in turn
        def linearised(u: bytes) -> tuple[FloatArray, FloatArray]:
            return _linearise(self.scaled, np.frombuffer(u))

        def at(z: FloatArray) -> tuple[FloatArray, FloatArray]:
            return linearised(np.clip(z[:d], 0, 1).tobytes())

        def descent(z: FloatArray) -> tuple[float, FloatArray]:
            values, slopes = at(z)
            value = float(costs @ z[d:] - gains @ values)
            return value, np.concatenate([-gains @ slopes, costs])

        # Typed by hand: SciPy's stubs do not know the "jac" of a constraint.
        kept: Any = {
            "type": "ineq",
            "fun": lambda z: constrain(*at(z))[0] + enters @ z[d:],
            "jac": lambda z: np.hstack([constrain(*at(z))[1], enters]),
        }
        # SLSQP warns of a step that left the box, and clips it; so do we.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            found = minimize(
                descent,
                np.concatenate([start, first]),
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * d + [(0.0, None)] * len(first),
                constraints=kept if len(enters) else (),
                options={"ftol": 1e-12, "maxiter": 100},
            )
        return np.clip(found.x[:d], 0, 1)


def _linearise(scaled: Predict, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return scaled metrics (m,) and their slopes (m, d) at u (d,) in one call."""
    d = len(u)
    steps = _STEP * np.eye(d)
    points = np.clip(np.vstack([u[None], u + steps, u - steps]), 0, 1)
    values = scaled(points)
    widths = np.diag(points[1 : d + 1] - points[d + 1 :])
    return values[0], (values[1 : d + 1] - values[d + 1 :]).T / widths
