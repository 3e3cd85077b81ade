"""How much each measurement counts: less where it is noisy.

The weight of a point is ``1 / (stderr**2 + tau**2)``: a quadratic that is off by its
shape, too, is off by ``tau`` at a point however well that was measured. Its square is
found from what the fit leaves, like the variance between the studies of a meta-analysis
(Paule and Mandel 1982; DerSimonian and Kacker 2007), but is the least that leaves what
noise may leave, not what it leaves on average: where the shape is right, by chance too
much is left every other time. The paper weighs all points alike.

Notation: ``n`` points, ``t`` terms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.least_squares import fit_terms
from mergekit_map.search.links import Link
from mergekit_map.search.observations import RANK_TOLERANCE, Observations

_SMALLEST = 1e-6  # of the largest error: more would be lost in rounding
_UNLIKELY = 0.05  # how often noise alone leaves more


def weigh(
    observed: Observations, link: Link, stderr: FloatArray | None
) -> Observations:
    """Weigh the points by what is known of their noise.

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
    """Give what a fit leaves (n,), and how the terms change that: (n, t).

    Around a fit the metric is linear in the terms, behind a link, too.
    """
    terms = fit_terms(observed, link)
    s = observed.features @ terms
    return observed.y - link.apply(s), link.derivative(s)[:, None] * observed.features


def _can_spare(observed: Observations) -> bool:
    """Tell whether more points were measured than a quadratic has terms."""
    n, n_terms = observed.features.shape
    singular = np.linalg.svd(observed.features, compute_uv=False)
    return n > n_terms and bool(singular[-1] > RANK_TOLERANCE * singular[0])


def _shape_variance(left: FloatArray, rows: FloatArray, noise: FloatArray) -> float:
    """Estimate the variance that noise (n,) leaves open."""
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
