"""Weighted least squares behind a link, and what it says about itself (eq. 3 to 5).

Notation: ``n`` points, ``t`` terms, ``features`` (n, t), ``y`` (n,) the metric,
``link`` from the quadratic ``features @ terms`` to the metric. Beyond the paper, a
point may also tell the slopes of the metric along the coefficients, and terms may be
shrunk towards zero: both are further rows of the same system.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
from scipy.optimize import least_squares

from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.links import Link
from mergekit_map.search.observations import RANK_TOLERANCE, Observations

# Of fits that leave out a point: how many steps to try, how far behind the link one may
# go, what it takes to have settled, and the least share of a ridge that keeps a step
# finite where the link is flat.
_STEPS, _LONGEST_STEP, _SETTLED, _DAMPING = 30, 2.0, 1e-9, 1e-13

log = logging.getLogger(__name__)


def fit_terms(observed: Observations, link: Link) -> FloatArray:
    """Minimise the weighted squares of values, slopes and shrunk terms; returns (t,).

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
    """Move values and slopes behind the link, where the model is linear.

    The weights are those of the delta method, not normalised.
    """
    s = link.invert(observed.y)
    bend = link.derivative(s)
    slopes = observed.slopes / bend[observed.owners]
    return replace(observed, y=s, slopes=slopes, weights=observed.weights * bend**2)


def residuals(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return weighted residuals of values, slopes and shrunk terms: (n + k + t,).

    Of terms (..., t) all of them: (..., n + k + t).
    """
    s = terms @ observed.features.T
    inner = terms @ observed.slope_features.T
    slopes = link.derivative(s)[..., observed.owners] * inner
    root, slope_root = observed.root_weights
    return np.concatenate(
        [
            root * (link.apply(s) - observed.y),
            slope_root * (slopes - observed.slopes),
            np.sqrt(observed.shrinkage) * terms,
        ],
        axis=-1,
    )


def jacobian(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Return the derivatives of ``residuals`` by the terms: (..., n + k + t, t)."""
    s = terms @ observed.features.T
    root, slope_root = (weights[:, None] for weights in observed.root_weights)
    first = link.derivative(s)[..., None]
    second = link.second_derivative(s)[..., None]
    inner = (terms @ observed.slope_features.T)[..., None]
    of = observed.owners
    slopes = second[..., of, :] * inner * observed.features[of]
    slopes = slopes + first[..., of, :] * observed.slope_features
    shrinkage = np.diag(np.sqrt(observed.shrinkage))
    return np.concatenate(
        [
            root * first * observed.features,
            slope_root * slopes,
            np.broadcast_to(shrinkage, (*s.shape[:-1], *shrinkage.shape)),
        ],
        axis=-2,
    )


def leave_one_out(observed: Observations, link: Link, terms: FloatArray) -> FloatArray:
    """Predict every point by the fit to the others: (n,), NaN where none exists."""
    n = len(observed.y)
    rows = jacobian(observed, Link(), terms)
    Q = np.linalg.qr(rows).Q
    blocks = [np.append(i, n + np.flatnonzero(observed.owners == i)) for i in range(n)]
    # A point with a leverage of 1 is the only one to show some term.
    rest = [np.eye(len(block)) - Q[block] @ Q[block].T for block in blocks]
    if min(np.linalg.eigvalsh(matrix)[0] for matrix in rest) < RANK_TOLERANCE:
        return np.full_like(observed.y, np.nan)
    if not link.is_identity:
        fits = _refine_without(blocks, observed, link, terms)
        return link.apply((observed.features * fits).sum(axis=1))
    misses = residuals(observed, link, terms)
    left_out = [
        np.linalg.solve(matrix, misses[block])[0]
        for matrix, block in zip(rest, blocks, strict=True)
    ]
    return observed.y + np.array(left_out) / np.sqrt(observed.weights)


def _refine_without(
    blocks: list[IntArray], observed: Observations, link: Link, terms: FloatArray
) -> FloatArray:
    """Fit all rows but those of a block, for each block: (n, t).

    By steps of Gauss and Newton, all fits at once; by ``_refine`` where these do not
    settle.
    """
    n, n_terms = observed.features.shape
    kept = np.ones((n, observed.n_rows + n_terms))
    for i, block in enumerate(blocks):
        kept[i, block] = 0.0
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

    NaN where the rows (r, t) of ``jacobian`` do not tell them: of a saturated fit, with
    every point that shows some term on a bound of the range.
    """
    _, singular, right = np.linalg.svd(rows, full_matrices=False)
    if singular[-1] <= RANK_TOLERANCE * singular[0]:
        return np.full((len(singular), len(singular)), np.nan)
    half = right.T / singular
    covariance: FloatArray = half @ half.T
    return covariance


def _solve(observed: Observations) -> FloatArray:
    identity = Link()
    zero = np.zeros(observed.features.shape[1])
    rows = jacobian(observed, identity, zero)
    solution = np.linalg.lstsq(rows, -residuals(observed, identity, zero), rcond=None)
    return solution[0].astype(np.float64)


def _refine(start: FloatArray, observed: Observations, link: Link) -> FloatArray:
    def misses(terms: FloatArray) -> FloatArray:
        return residuals(observed, link, terms)

    def slopes(terms: FloatArray) -> FloatArray:
        return jacobian(observed, link, terms)

    # Not MINPACK's "lm", whose last bits differ from one process to the next.
    fit = least_squares(
        misses,
        start,
        jac=slopes,
        method="trf",
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
        max_nfev=100 * len(start),
    )
    if fit.status == 0:
        log.warning("a fit of %d terms stopped after %d steps", len(start), fit.nfev)
    return np.asarray(fit.x, dtype=np.float64)
