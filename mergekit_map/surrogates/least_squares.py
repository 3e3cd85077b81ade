"""Weighted least squares behind a link: weights, ridge, leave-one-out (eq. 3 to 5).

Notation: ``n`` points, ``t`` terms, ``features`` (n, t), ``y`` (n,) the metric,
``link`` from the quadratic ``features @ terms`` to the metric. Beyond the paper, terms
may be shrunk towards zero, by further rows of the same system.

Weights. The weight of a point is ``1 / (stderr**2 + tau**2)``, where ``tau`` is the
error of the quadratic's shape at a point, however well that was measured. Its square is
estimated from the residuals, like the variance between the studies of a meta-analysis
(Paule and Mandel 1982; DerSimonian and Kacker 2007). It is the smallest variance that
explains the residuals at the limit of their noise, not on average: where the shape is
right, residuals exceed their average every other time by chance. The paper weighs all
points alike.

Ridge. With fewer evaluations than terms, or hardly more, least squares follows the
noise and the error of the shape. Beyond the paper, each term has a normal prior around
0, one width for the linear terms, one for the squares and one for the products. The
widths and the noise maximise the evidence (type II maximum likelihood). With plenty of
data the fit is that of least squares.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import brentq, least_squares, minimize
from scipy.special import chdtri

from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.kernel import kinds_of_terms
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.observations import RANK_TOLERANCE, Observations

# Of fits that leave out a point: how many steps to try, how far behind the link one may
# go, what it takes to have settled, and the least share of a ridge that keeps a step
# finite where the link is flat.
_STEPS, _LONGEST_STEP, _SETTLED, _DAMPING = 30, 2.0, 1e-9, 1e-13
# Of weights: the least error, as a share of the largest, as more would be lost in
# rounding, and how often noise alone leaves more.
_SMALLEST, _UNLIKELY = 1e-6, 0.05
# Of a ridge, where the logarithms start: of the widths and of the noise, in standard
# deviations of the metric. And how vaguely we believe that; it only decides what the
# data leave open.
_START = np.log([1.0, 1.0, 1.0, 0.01])
_PRIOR_STDDEV = np.array([4.0, 4.0, 4.0, 1.5])

log = logging.getLogger(__name__)


def fit_terms(observed: Observations, link: Link) -> FloatArray:
    """Minimise the weighted squares of residuals and shrunk terms; returns (t,).

    Closed form for the identity link. The paper starts the others from the closed-form
    fit of the inverted data; we start from two such fits and keep the better result.
    """
    if link.is_identity:
        return _solve(observed)
    # Weighing by the squared slope of the link is the delta method for the inverted
    # data: it ignores points near a bound, whose inverse is all noise. The plain fit
    # does not, which is better where many points lie there.
    inverted = invert(observed, link)
    plain = replace(inverted, weights=observed.weights)
    fits = [_refine(_solve(start), observed, link) for start in (inverted, plain)]
    costs = [float((residuals(observed, link, fit) ** 2).sum()) for fit in fits]
    return fits[int(np.argmin(costs))]


def invert(observed: Observations, link: Link) -> Observations:
    """Transform the values by the inverse link, where the model is linear.

    The weights are those of the delta method, not normalised.
    """
    s = link.invert(observed.y)
    return replace(observed, y=s, weights=observed.weights * link.derivative(s) ** 2)


def residuals(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return weighted residuals of values and shrunk terms: (n + t,).

    Of terms (..., t) all of them: (..., n + t).
    """
    s = terms @ observed.features.T
    misses = np.sqrt(observed.weights) * (link.apply(s) - observed.y)
    return np.concatenate([misses, np.sqrt(observed.shrinkage) * terms], axis=-1)


def jacobian(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return the derivatives of ``residuals`` by the terms: (..., n + t, t)."""
    s = terms @ observed.features.T
    rows = (np.sqrt(observed.weights) * link.derivative(s))[..., None]
    shrinkage = np.diag(np.sqrt(observed.shrinkage))
    shrinkage = np.broadcast_to(shrinkage, (*s.shape[:-1], *shrinkage.shape))
    return np.concatenate([rows * observed.features, shrinkage], axis=-2)


def leave_one_out(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Predict every point by the fit to the others: (n,), NaN where none exists."""
    n = len(observed.y)
    Q = np.linalg.qr(jacobian(observed, Link(), terms)).Q
    leverage: FloatArray = np.array([row @ row for row in Q[:n]])
    # A point with a leverage of 1 is the only one to show some term.
    if (1 - leverage).min() < RANK_TOLERANCE:
        return np.full_like(observed.y, np.nan)
    if not link.is_identity:
        fits = _refine_without(observed, link, terms)
        return link.apply((observed.features * fits).sum(axis=1))
    left_out = residuals(observed, link, terms)[:n] / (1 - leverage)
    return observed.y + left_out / np.sqrt(observed.weights)


def _refine_without(
    observed: Observations, link: Link, terms: FloatArray
) -> FloatArray:
    """Fit all points but one, for each point: (n, t).

    All fits take Gauss-Newton steps at once; those that do not converge are left to
    ``_refine``.
    """
    n, n_terms = observed.features.shape
    kept = np.ones((n, n + n_terms))
    np.fill_diagonal(kept, 0.0)
    fits, moved = np.tile(terms, (n, 1)), np.full(n, np.inf)
    for _ in range(_STEPS):
        rows = kept[:, :, None] * jacobian(observed, link, fits)
        squares = rows.transpose(0, 2, 1) @ rows
        damping = _DAMPING * np.trace(squares, axis1=1, axis2=2) + np.finfo(float).tiny
        squares += damping[:, None, None] * np.eye(n_terms)
        pull = rows.transpose(0, 2, 1) @ residuals(observed, link, fits)[:, :, None]
        steps = np.linalg.solve(squares, pull)[:, :, 0]
        moved = np.abs(steps @ observed.features.T).max(axis=1)
        fits -= (
            steps * np.minimum(1, _LONGEST_STEP / np.maximum(moved, 1e-300))[:, None]
        )
        if moved.max() < _SETTLED:
            return fits
    for i in np.flatnonzero(moved >= _SETTLED).tolist():
        fits[i] = _refine(terms, observed.without(i), link)
    return fits


def unit_covariance(rows: FloatArray) -> FloatArray:
    """Return the (t, t) covariance of the terms if a row of weight 1 has variance 1.

    NaN where the rows (r, t) of ``jacobian`` do not identify the terms: in a saturated
    fit, where all points that identify some term are on a bound of the range.
    """
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0]:
        return np.full((len(singular), len(singular)), np.nan)
    half = right.T / singular
    return np.asarray(half @ half.T)


def _solve(observed: Observations) -> FloatArray:
    identity = Link()
    zero = np.zeros(observed.features.shape[1])
    rows = jacobian(observed, identity, zero)
    solution = np.linalg.lstsq(rows, -residuals(observed, identity, zero), rcond=None)
    return solution[0].astype(np.float64)


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
    if fit.status == 0:
        log.warning("a fit of %d terms stopped after %d steps", len(start), fit.nfev)
    return np.asarray(fit.x, dtype=np.float64)


def weigh(
    observed: Observations, link: Link, stderr: FloatArray | None
) -> Observations:
    """Weigh the points by their noise and by the error of the shape.

    Args:
        observed: Of equal weights.
        link: The range of the metric.
        stderr: (n,) positive standard errors; None if unknown.
    """
    if stderr is None or np.ptp(stderr) == 0:
        return observed
    # Relative to the largest one: the squares of tiny standard errors would underflow.
    noise = _variances(stderr, float(stderr.max()))
    start = _weighted(observed, noise + noise.mean())
    if not _can_spare(observed):
        return start
    left, rows = _linear(start, link)
    unit = max(float(stderr.max()), float(np.abs(left).max()))
    noise = _variances(stderr, unit)
    return _weighted(observed, noise + _shape_variance(left / unit, rows, noise))


def _variances(stderr: FloatArray, unit: float) -> FloatArray:
    return np.asarray(np.maximum(stderr / unit, _SMALLEST) ** 2)


def _weighted(observed: Observations, variance: FloatArray) -> Observations:
    weights = 1 / variance
    return replace(observed, weights=weights / weights.mean())


def _linear(observed: Observations, link: Link) -> tuple[FloatArray, FloatArray]:
    """Return the residuals of a fit (n,), and their derivatives by the terms: (n, t).

    Around a fit the metric is linear in the terms, behind a link, too.
    """
    terms = fit_terms(observed, link)
    s = observed.features @ terms
    return observed.y - link.apply(s), link.derivative(s)[:, None] * observed.features


def _can_spare(observed: Observations) -> bool:
    """Whether more points were measured than a quadratic has terms."""
    n, n_terms = observed.features.shape
    singular = np.linalg.svd(observed.features, compute_uv=False)
    return n > n_terms and bool(singular[-1] > RANK_TOLERANCE * singular[0])


def _shape_variance(left: FloatArray, rows: FloatArray, noise: FloatArray) -> float:
    """Estimate the variance of the residuals that the noise (n,) does not explain."""
    n, n_terms = rows.shape
    likely = float(chdtri(n - n_terms, _UNLIKELY))

    def excess(variance: float) -> float:
        root = 1 / np.sqrt(noise + variance)
        weighted = root[:, None] * rows
        step = np.linalg.lstsq(weighted, root * left, rcond=None)[0]
        return float(((root * left - weighted @ step) ** 2).sum()) - likely

    if excess(0.0) <= 0:
        return 0.0
    most = float((left**2).sum()) / likely
    return float(brentq(excess, 0.0, most, xtol=1e-12 * most, rtol=1e-6))


def shrink(observed: Observations, link: Link, d: int) -> tuple[Observations, float]:
    """Choose the ridge; also return the noise variance.

    ``observed`` must not be shrunk already; ``d`` is the number of coefficients. The
    constant term stays free. The variance is that of a point of weight 1, in the
    metric's units squared.
    """
    # Behind the link the model is linear, and the evidence has a closed form.
    linear = invert(observed, link)
    away = linear.y - linear.y.mean()
    scale = math.sqrt(linear.weights @ away**2 / len(away)) or 1.0
    kinds = kinds_of_terms(d)
    evidence = _Evidence(_gram(linear, scale), kinds, len(linear.y))
    bounds = [(-14.0, 10.0)] * len(_START)
    found = minimize(
        evidence.loss, _START, jac=True, method="L-BFGS-B", bounds=bounds
    ).x
    variance = math.exp(2 * found[3])
    shrinkage = np.where(kinds < 0, 0.0, variance * np.exp(-2 * found[kinds]))
    return replace(observed, shrinkage=shrinkage), variance * scale**2


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The evidence of the data, given the logarithms of widths and noise: (4,)."""

    gram: FloatArray  # (t + 1, t + 1), as ``_gram`` has it
    kinds: IntArray  # (t,)
    n: int

    def loss(self, logs: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log evidence, up to a constant, and its gradient."""
        terms = [self.kinds == kind for kind in range(3)]
        count = np.array([*(part.sum() for part in terms), self.n])
        precision = np.where(self.kinds < 0, 0.0, np.exp(-2 * logs[self.kinds]))
        gram = self.gram * math.exp(-2 * logs[3])
        matrix = gram[:-1, :-1] + np.diag(precision)
        sign, determinant = np.linalg.slogdet(matrix)
        if sign <= 0:
            return 1e12, np.zeros_like(logs)
        inverse = np.linalg.inv(matrix)
        best = inverse @ gram[:-1, -1]
        misfit = gram[-1, -1] - gram[-1, :-1] @ best
        away = (logs - _START) / _PRIOR_STDDEV
        value = misfit + determinant + 2 * (logs @ count) + away @ away
        # How misfit and determinant change with the rows, and with each precision.
        outer = np.outer(np.append(-best, 1), np.append(-best, 1))
        outer[:-1, :-1] += inverse
        known = precision * (best**2 + inverse.diagonal())
        changes = [*(known[part].sum() for part in terms), (outer * gram).sum()]
        return float(value) / 2, count - np.array(changes) + away / _PRIOR_STDDEV


def _gram(linear: Observations, scale: float) -> FloatArray:
    """Return the Gram matrix of the rows [features, target]; (t + 1, t + 1).

    Targets are in units of ``scale``.
    """
    targets = (linear.y - linear.y.mean()) / scale
    rows = np.column_stack([linear.features, targets])
    rows *= np.sqrt(linear.weights)[:, None]
    return np.asarray(rows.T @ rows)
