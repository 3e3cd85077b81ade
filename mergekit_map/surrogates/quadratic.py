"""The quadratic ``s(c) = e + b.c + c'Ac / 2`` of section 3.1 and its fit (eq. 2 to 5).

A link maps the quadratic to the range of the metric (section 3.1, corollary 1, three
cases): on the whole real line it is the quadratic itself, in [l, u]
``(u - l) sigmoid(s) + l``, in [l, inf) ``softplus(s) + l``. The paper does not treat
(-inf, u]; we mirror its third case, ``u - softplus(-s)``. All four increase in ``s``,
so the direction of a metric is that of its quadratic.

Notation: ``n`` points, ``d`` coefficients, ``X`` (n, d), ``t = (d + 1)(d + 2) / 2``
terms, always in the order intercept, linear, upper triangle of A row by row;
``features`` (n, t), ``y`` (n,) the metric, ``link`` from ``features @ terms`` to it.

The weight of a point is ``1 / (stderr**2 + mean)``, where ``mean`` is that of all
``stderr**2``. This mean stands for the error of the quadratic itself, and keeps one
precise point from deciding the fit. The paper (MAP, ICLR 2025) weighs all alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit, logit

from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray

# Singular values below this fraction of the largest count as zero: a design this close
# to degenerate would answer with the rounding of the coefficients.
RANK_TOLERANCE = 1e-10
# How far ``invert`` keeps off a bound: a fraction of the range, or of one unit of the
# metric where the range has one bound only (softplus bends within a unit of it).
INVERT_MARGIN = 1e-6


@dataclass(frozen=True)
class Link:
    """A strictly increasing map from the real line onto the range of a metric.

    Infinite bounds, the default, stand for "unbounded". Arrays of any shape go in and
    come out with that shape; NaN stays NaN.
    """

    lower: float = -np.inf
    upper: float = np.inf

    @property
    def is_identity(self) -> bool:
        """Whether the metric is the quadratic itself (case 1)."""
        return self.lower == -np.inf and self.upper == np.inf

    def apply(self, s: FloatArray) -> FloatArray:
        """Return the metric at the quadratic's values ``s``, in the metric's units.

        Far out it rounds to the bound itself, never beyond it.
        """
        if self.is_identity:
            return s.copy()
        if self.upper == np.inf:
            return _softplus(s) + self.lower
        if self.lower == -np.inf:
            return self.upper - _softplus(-s)
        value: FloatArray = (self.upper - self.lower) * expit(s) + self.lower
        return np.minimum(value, self.upper)

    def derivative(self, s: FloatArray) -> FloatArray:
        """Return the derivative of ``apply`` at ``s``; zero far from the bend."""
        if self.is_identity:
            return np.ones_like(s)
        if self.upper == np.inf:
            return expit(s)
        if self.lower == -np.inf:
            return expit(-s)
        return (self.upper - self.lower) * expit(s) * expit(-s)

    def invert(self, y: FloatArray) -> FloatArray:
        """Return quadratic values that give the metric values ``y``.

        Exact inside the range. Nearer to a bound than ``INVERT_MARGIN``, on it or
        beyond it, where the inverse is infinite or does not exist, ``y`` is first moved
        to that margin: good enough to start a fit from, never used as an observation.
        """
        if self.is_identity:
            return y.copy()
        if self.upper == np.inf:
            return _softplus_inverse(y - self.lower)
        if self.lower == -np.inf:
            return -_softplus_inverse(self.upper - y)
        fraction = (y - self.lower) / (self.upper - self.lower)
        return logit(np.clip(fraction, INVERT_MARGIN, 1 - INVERT_MARGIN))


def _softplus(s: FloatArray) -> FloatArray:
    # log(1 + exp(s)) without overflow; np.logaddexp would warn about NaN.
    return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))


def _softplus_inverse(distance: FloatArray) -> FloatArray:
    # log(exp(x) - 1), written so that neither end overflows or cancels.
    x = np.maximum(distance, INVERT_MARGIN)
    return x + np.log(-np.expm1(-x))


def n_quadratic_terms(d: int) -> int:
    """Count the parameters of a quadratic in d coefficients: (d + 1)(d + 2) / 2."""
    return (d + 1) * (d + 2) // 2


def quadratic_features(X: FloatArray) -> FloatArray:
    """Return the (n, t) matrix whose columns the terms of the quadratic weigh."""
    # c'Ac / 2 is the sum of A_ii c_i**2 / 2, and of A_ij c_i c_j over pairs i < j.
    rows, columns, is_square = _second_order_pairs(X.shape[1])
    second_order = X[:, rows] * X[:, columns]
    second_order[:, is_square] /= 2
    return np.hstack([np.ones((len(X), 1)), X, second_order])


def directional_derivative(X: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the derivative of ``quadratic_features`` along a direction (n, d)."""
    rows, columns, is_square = _second_order_pairs(X.shape[1])
    second_order = X[:, rows] * direction[:, columns]
    second_order += X[:, columns] * direction[:, rows]
    second_order[:, is_square] /= 2
    return np.hstack([np.zeros((len(X), 1)), direction, second_order])


@cache
def _second_order_pairs(d: int) -> tuple[IntArray, IntArray, BoolArray]:
    """List the pairs of coefficients of second-order terms, and which are squares."""
    rows, columns = np.triu_indices(d)
    return rows, columns, rows == columns


@dataclass(frozen=True, eq=False)
class Observations:
    """Rows of a least-squares problem for the terms, with their weights."""

    features: FloatArray  # (n, t)
    y: FloatArray  # (n,)
    weights: FloatArray  # (n,) not negative; only their ratios matter

    @property
    def scaled_features(self) -> FloatArray:
        """Return the features times the root of the weights; (n, t)."""
        return np.asarray(np.sqrt(self.weights)[:, None] * self.features)

    def without(self, point: int) -> Observations:
        """Return the observations without a point."""
        kept = np.arange(len(self.y)) != point
        return Observations(self.features[kept], self.y[kept], self.weights[kept])


def fit_terms(observed: Observations, link: Link) -> FloatArray:
    """Minimise the weighted squares of residuals; returns (t,).

    Closed form for the identity link. The paper starts the others from the closed-form
    fit of the inverted data; we start from two such fits and keep the better result.
    """
    if link.is_identity:
        return _solve(observed)
    # The first start weighs by the squared slope of the link, the delta method for the
    # inverted data: it ignores points near a bound, whose inverse is all noise. The
    # second keeps the weights, which is better where many points are near a bound.
    inverted = replace(observed, y=link.invert(observed.y))
    slope_weights = observed.weights * link.derivative(inverted.y) ** 2
    starts = [_solve(replace(inverted, weights=slope_weights)), _solve(inverted)]
    fits = [_refine(start, observed, link) for start in starts]
    costs = [float((residuals(observed, link, terms) ** 2).sum()) for terms in fits]
    return fits[int(np.argmin(costs))]


def residuals(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return the weighted residuals of the values; (n,)."""
    errors = link.apply(observed.features @ terms) - observed.y
    return np.asarray(np.sqrt(observed.weights) * errors)


def jacobian(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return the derivatives of ``residuals`` by the terms; (n, t)."""
    scales = np.sqrt(observed.weights) * link.derivative(observed.features @ terms)
    return np.asarray(scales[:, None] * observed.features)


def leave_one_out(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Predict every point by the fit to the others; (n,).

    All are NaN if there is a point without which no fit is unique.
    """
    Q = np.linalg.qr(observed.scaled_features).Q
    leverage: FloatArray = np.array([row @ row for row in Q])
    # Some term is determined by a point of leverage 1 alone.
    if (1 - leverage).min() < RANK_TOLERANCE:
        return np.full_like(observed.y, np.nan)
    if link.is_identity:
        loo_residuals = residuals(observed, link, terms) / (1 - leverage)
        return observed.y + loo_residuals / np.sqrt(observed.weights)
    n = len(leverage)
    refits = [_refine(terms, observed.without(point), link) for point in range(n)]
    return link.apply((observed.features * refits).sum(axis=1))


def _solve(observed: Observations) -> FloatArray:
    """Fit the terms in closed form, for the identity link; (t,)."""
    scaled_y = np.sqrt(observed.weights) * observed.y
    solution, *_ = np.linalg.lstsq(observed.scaled_features, scaled_y, rcond=None)
    return solution.astype(np.float64)


def _refine(start: FloatArray, observed: Observations, link: Link) -> FloatArray:
    # Not MINPACK's "lm", whose last bits differ from one process to the next.
    fit = least_squares(
        partial(residuals, observed, link),
        start,
        jac=partial(jacobian, observed, link),
        method="trf",
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
        max_nfev=100 * len(start),
    )
    return np.asarray(fit.x, dtype=np.float64)


def observation_weights(y: FloatArray, stderr: FloatArray | None) -> FloatArray:
    """Weigh values by their standard errors (n,), positive; None if unknown."""
    if stderr is None:
        return np.ones_like(y)
    # Relative to the largest one: the squares of tiny standard errors would underflow.
    variances = (stderr / stderr.max()) ** 2
    weights = 1 / (variances + variances.mean())
    return np.asarray(weights / weights.mean())
