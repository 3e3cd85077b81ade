"""The optimum of a scalarisation with limits, on the surrogates instead of the front.

Notation: ``d`` coefficients, ``m`` tasks, ``X`` (k, d) points of a front, ``predict``
maps (k, d) to (k, m), larger is better. Tasks count from their worst (0) to their best
(1) value over the front, as in ``selection``. The paper takes the best front point.
Between the points of a front there are better ones, more so with more tasks, and some
limits are kept by no point of the front but by a merge between them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray, IntArray, from_unit, to_unit

Predict: TypeAlias = Callable[[FloatArray], FloatArray]
WORTH_A_POINT = 1e-4  # of the range: what a further point must gain
_N_SAMPLES = 2048  # Sobol points that are looked at besides the front
_N_STARTS = 3
_STEP = 1e-5  # of the numerical derivatives
_MARGIN = 1e-7  # of the range, by which limits are kept
# What counts of the tasks that the wish leaves free, so that none is given away.
_SECOND_THOUGHT = 1e-5
_OUTSIDE = 1e3  # puts all that miss a limit behind all that keep them


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
    # SciPy takes longer to import than all else where only a point is looked up.
    from scipy.stats import qmc

    Y = predict(X)
    worst, width = Y.min(axis=0), np.ptp(Y, axis=0)
    constant = width <= 1e-12 * np.abs(Y).max(axis=0)
    width = np.where(constant, 1.0, width)
    limits = (wish.lower - worst) / width

    def scaled(U: FloatArray) -> FloatArray:
        S = (predict(from_unit(U, bounds)) - worst) / width
        return np.where(constant & ~np.isfinite(limits), 1.0, S)

    problem = _Problem(scaled, wish, limits)
    best_known = problem.rank(problem.scaled(to_unit(X, bounds))).max(axis=0)
    samples = qmc.Sobol(len(bounds), scramble=False).random(_N_SAMPLES)
    found = problem.solve(np.vstack([to_unit(X, bounds), samples]))
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
        """Find the best point, from the best of the candidates (k, d)."""
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
        last: dict[bytes, tuple[FloatArray, FloatArray]] = {}

        def at(z: FloatArray) -> tuple[FloatArray, FloatArray]:
            u = np.clip(z[:d], 0, 1)
            if u.tobytes() not in last:  # objective and constraints ask in turn
                last.clear()
                last[u.tobytes()] = _linearise(self.scaled, u)
            return last[u.tobytes()]

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
