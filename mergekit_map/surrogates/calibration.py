"""The errors of a surrogate, estimated by a Gaussian process on the same data.

A quadratic also errs by its shape. Its misfit is chosen such that, on average over the
box, 95 % of its intervals hold what a process fitted to the same data expects of the
truth. A surrogate with a process is as uncertain as that process, averaged over its
hyperparameters. ``Residual`` is the mean of a process that is added to the quadratic
behind the link, so that predictions stay in the metric's range.

Notation: ``n`` merges, ``t`` terms of the quadratic, ``k`` points, ``s`` (k,)
predictions behind the link, ``U`` (k, d) coefficients scaled to [-1/2, 1/2] by the
bounds of the search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import qmc

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import (
    Process,
    averaged,
    draw_metric,
    fit_process,
    stderr_in_metric,
)
from mergekit_map.surrogates.kernel import Rows
from mergekit_map.surrogates.least_squares import invert
from mergekit_map.surrogates.links import INVERT_MARGIN, Link
from mergekit_map.surrogates.observations import Observations, joined
from mergekit_map.surrogates.quadratic import quadratic_features

_COVERED, _STDERRS = 0.95, 1.96
_MOST_MISFIT = 100.0  # standard deviations of what was measured
_N_PLACES = 128
# A noisy point of a bounded metric is taken off its bound by so many standard errors;
# where the link is flatter than this share of its steepest slope, it tells nothing; and
# it is moved behind the link by so many standard deviations at most.
_OFF_BOUND, _FLATTEST, _FARTHEST = 0.5, 0.02, 3.0


def fit_process_behind(
    observed: Observations,
    link: Link,
    stderr: FloatArray | None,
    sampling: FloatArray | None = None,
) -> Process:
    """Fit a process to the measurements, transformed by the inverse link.

    The link is linearised at each measured value, then at the value that the first
    process predicts, as a noisy accuracy of 0 is not minus infinity.

    Args:
        observed: Not shrunk.
        link: The range of the metric.
        stderr: (n,) positive standard errors; None if unknown.
        sampling: (n,) those of a subset of documents; None if all were measured.
    """
    errors = joined(stderr, sampling)
    start = invert(_off_the_bounds(observed, link, errors), link)
    noise = _Noise(stderr, sampling)
    process = _fit(observed, noise, start.y, link.derivative(start.y), start.slopes)
    if not link.is_identity:
        s = process.best_at_points()
        slope = link.derivative(s)
        slope = np.maximum(slope, _FLATTEST * slope.max())
        far = _FARTHEST * process.scale
        moved = np.clip((observed.y - link.apply(s)) / slope, -far, far)
        slopes = observed.slopes / slope[observed.owners]
        process = _fit(observed, noise, s + moved, slope, slopes, process.theta)
    return averaged(process, known_noise=stderr is not None)


class _Noise(NamedTuple):
    """Standard errors (n,), as ``fit_process_behind`` takes them."""

    stderr: FloatArray | None
    sampling: FloatArray | None


def _fit(
    observed: Observations,
    measured: _Noise,
    z: FloatArray,
    slope: FloatArray,
    slopes: FloatArray,
    start: FloatArray | None = None,
) -> Process:
    unit = float(observed.y.std()) or 1.0
    known = measured.stderr is not None
    noise = np.full(slope.shape, unit) if measured.stderr is None else measured.stderr
    variances = np.concatenate([(noise / slope) ** 2, np.ones(len(slopes))])
    sampling = np.zeros(len(variances))
    if measured.sampling is not None:
        sampling[: len(slope)] = (measured.sampling / slope) ** 2
    rows = Rows(observed.U, np.unique(observed.owners), variances, sampling)
    return fit_process(rows, np.append(z, slopes), known_noise=known, start=start)


def _off_the_bounds(
    observed: Observations, link: Link, stderr: FloatArray | None
) -> Observations:
    margin = INVERT_MARGIN if stderr is None else _OFF_BOUND * stderr
    low, high = link.lower + margin, link.upper - margin
    return replace(observed, y=np.minimum(np.maximum(observed.y, low), high))


def find_misfit(
    process: Process,
    link: Link,
    terms: FloatArray,
    unit_covariance: FloatArray,
    noise: float,
    steepness: float,
) -> float:
    """Estimate the model discrepancy of a quadratic, the same everywhere in the box.

    A misfit also adds to the error of the fit, as each point has it.

    Args:
        process: Fitted to the same data.
        link: The range of the metric.
        terms: (t,) of the quadratic on scaled coefficients.
        unit_covariance: (t, t) of the terms if points had the variance 1.
        noise: Variance of a point, in the metric's units.
        steepness: Mean square of the slope of the link at the points.

    Returns:
        A standard deviation behind the link, 0 or more.
    """
    U = qmc.Sobol(process.rows.U.shape[1], scramble=False).random(_N_PLACES) - 0.5
    features = quadratic_features(U)
    s = features @ terms
    # Not negative but for rounding.
    leverage = np.maximum(((features @ unit_covariance) * features).sum(axis=1), 0.0)
    off = np.abs(draw_metric(process, link, U) - link.apply(s))

    def missing(misfit: float) -> float:
        variance = (steepness * misfit**2 + noise) * leverage + misfit**2
        held = off <= _STDERRS * stderr_in_metric(link, s, np.sqrt(variance))
        return _COVERED - float(process.weights @ held.mean(axis=(0, 2)))

    if missing(0.0) <= 0:
        return 0.0
    most = _MOST_MISFIT * process.scale
    return float(brentq(missing, 0.0, most, rtol=1e-3)) if missing(most) < 0 else most
