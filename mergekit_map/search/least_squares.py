"""Weighted least squares behind a link, and what it says about itself (eq. 3 to 5).

Notation: ``n`` points, ``t`` terms, ``features`` (n, t) of full column rank, ``y`` (n,)
the metric, ``weights`` (n,) positive with mean 1, ``link`` from the quadratic
``features @ terms`` to the metric.
"""

from __future__ import annotations

import logging
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from mergekit_map.search.links import Link

FloatArray = NDArray[np.float64]
log = logging.getLogger(__name__)

# Singular values below this fraction of the largest count as zero: a design this close
# to degenerate would answer with the rounding of the coefficients.
RANK_TOLERANCE = 1e-10


def fit_terms(
    features: FloatArray, y: FloatArray, weights: FloatArray, link: Link
) -> FloatArray:
    """Minimise ``sum(weights * (y - link(features @ terms))**2)``; returns (t,).

    Closed form for the identity link. The paper starts the others from the closed-form
    fit of the inverted data; we start from two such fits and keep the better result.
    """
    if link.is_identity:
        return _solve(features, y, weights)
    s = link.invert(y)
    # Weighing by the squared slope of the link is the delta method for the inverted
    # data: it ignores points near a bound, whose inverse is all noise. The plain fit
    # does not, which is better where many points lie there.
    slope = link.derivative(s)
    starts = [_solve(features, s, weights * slope**2), _solve(features, s, weights)]
    fits = [_refine(start, features, y, weights, link) for start in starts]
    costs = [float(weights @ (link.apply(features @ fit) - y) ** 2) for fit in fits]
    return fits[int(np.argmin(costs))]


def leave_one_out(
    features: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    link: Link,
    terms: FloatArray,
) -> FloatArray:
    """Predict every point by the fit to the others: (n,), NaN where none exists."""
    # A point with leverage 1 is the only one to show some term.
    leverage = (np.linalg.qr(np.sqrt(weights)[:, None] * features).Q ** 2).sum(axis=1)
    if leverage.max() > 1 - RANK_TOLERANCE:
        return np.full_like(y, np.nan)
    if link.is_identity:
        left_out: FloatArray = y - (y - features @ terms) / (1 - leverage)
        return left_out
    predicted = np.empty_like(y)
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        fit = _refine(terms, features[rest], y[rest], weights[rest], link)
        predicted[i] = link.apply(features[i : i + 1] @ fit)[0]
    return predicted


def terms_covariance(
    jacobian: FloatArray,
    weights: FloatArray,
    variance: float,
    stderr: FloatArray | None,
) -> FloatArray:
    """Return the (t, t) covariance of the terms; NaN where nothing tells it.

    From the residual variance if there are degrees of freedom. Without any the fit
    passes through every point and their measured noise is carried over. A saturated
    fit (every point that shows some term on a bound of the range) has none either.
    """
    root = np.sqrt(weights)
    left, singular, right = np.linalg.svd(root[:, None] * jacobian, full_matrices=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0]:
        return np.full((len(singular), len(singular)), np.nan)
    if not math.isnan(variance):
        noise = math.sqrt(variance) / root
    elif stderr is not None and stderr.any():
        noise = stderr
    else:
        noise = np.full_like(root, np.nan)
    pseudo_inverse = (right.T / singular) @ left.T  # (t, n), of root * jacobian
    half = pseudo_inverse * (root * noise)
    covariance: FloatArray = half @ half.T
    return covariance


def _solve(features: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    root = np.sqrt(weights)
    solution = np.linalg.lstsq(root[:, None] * features, root * y, rcond=None)[0]
    return solution.astype(np.float64)


def _refine(
    start: FloatArray,
    features: FloatArray,
    y: FloatArray,
    weights: FloatArray,
    link: Link,
) -> FloatArray:
    root = np.sqrt(weights)

    def residuals(terms: FloatArray) -> FloatArray:
        return root * (link.apply(features @ terms) - y)

    def jacobian(terms: FloatArray) -> FloatArray:
        return (root * link.derivative(features @ terms))[:, None] * features

    fit = least_squares(
        residuals,
        start,
        jac=jacobian,
        method="lm",
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
        max_nfev=100 * len(start),
    )
    if fit.status == 0:
        log.warning("a fit of %d terms stopped after %d steps", len(start), fit.nfev)
    return np.asarray(fit.x, dtype=np.float64)
