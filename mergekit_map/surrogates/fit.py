"""Fit of one metric's surrogate and of its uncertainty (section 3.1, eq. 2 to 5).

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, larger is better, ``t = (d + 1)(d + 2) / 2`` terms. The quadratic
is fitted on coefficients scaled to [-1/2, 1/2] by the bounds of the search.

Beyond the paper: measured standard errors weigh the fit, each fit reports its exact
leave-one-out R2, the terms may be shrunk, and a Gaussian process may model the
residuals of the quadratic.

A quadratic also errs by its shape. Its misfit is chosen such that, on average over the
box, 95 % of its intervals hold what a process fitted to the same data expects of the
truth. A surrogate with a process is as uncertain as that process, averaged over its
hyperparameters.

Fits and fronts use one thread of BLAS, as their matrices are small. More threads wait
for each other longer than they work. They also round the last digits differently, so
that a front would depend on the number of cores.
"""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which is to be found
from scipy.optimize import brentq
from scipy.stats import qmc
from threadpoolctl import ThreadpoolController

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import (
    Process,
    averaged,
    draw_metric,
    fit_process,
    stderr_in_metric,
)
from mergekit_map.surrogates.kernel import Residual, Rows
from mergekit_map.surrogates.least_squares import (
    fit_terms,
    jacobian,
    leave_one_out,
    shrink,
    unit_covariance,
    weigh,
)
from mergekit_map.surrogates.links import INVERT_MARGIN, Link
from mergekit_map.surrogates.observations import (
    Observations,
    check_distinct,
    check_identified,
    joined,
    known_errors,
    make_observations,
)
from mergekit_map.surrogates.quadratic import quadratic_features, quadratic_from_terms
from mergekit_map.surrogates.surrogate import FitQuality, Surrogate

# The share of the process's left-out error that the quadratic's must be below: with few
# merges these are noisy, and the process predicts better on average.
_CLEARLY = 0.7
Kind: TypeAlias = Literal["auto", "quadratic", "regularized", "residual_gp"]
_COVERED, _STDERRS = 0.95, 1.96
_MOST_MISFIT = 100.0  # standard deviations of what was measured
_N_PLACES = 128
_BLAS = "blas"
# A noisy point of a bounded metric is taken off its bound by so many standard errors;
# where the link is flatter than this share of its steepest slope, it tells nothing; and
# it is moved behind the link by so many standard deviations at most.
_OFF_BOUND, _FLATTEST, _FARTHEST = 0.5, 0.02, 3.0


def fit_surrogate(
    X: FloatArray,
    y: FloatArray,
    *,
    stderr: FloatArray | None,
    link: Link,
    bounds: FloatArray,
    kind: Kind = "quadratic",
    sampling: FloatArray | None = None,
) -> Surrogate:
    """Fit the surrogate of one metric; all but the process by weighted least squares.

    Case 1 (identity link) is solved in closed form; the others by Levenberg-Marquardt
    from the closed-form fits of the inverted data. ``least_squares`` says how
    much each point counts.

    A metric that is constant over all points is fitted like any other; its R2 is 1 if
    the residuals are rounding, else 0. Repeated rows are used, but only distinct ones
    count towards identifying the quadratic. Values outside the link's range are used
    as they are.

    Args:
        X: (n, d) finite coefficients, inside the bounds or not.
        y: (n,) finite metric values; the caller leaves out merges that failed.
        stderr: (n,) their standard errors, NaN where unknown; None if all are. If none
            is positive, all points count alike.
        link: The range of the metric.
        bounds: (d, 2) the box of the search, used as the unit of each coefficient.
        kind: "quadratic"; "regularized", which shrinks the terms as far as the data ask
            for and does with fewer points than terms; "residual_gp", a quadratic with a
            Gaussian process for what it leaves; or "auto", that, unless the left-out
            errors of the regularized quadratic are clearly smaller.
        sampling: (n,) standard errors of values that are estimates from some documents,
            0 where all were measured; None if they were everywhere.

    Raises:
        DesignError: X does not identify all t terms, with what is missing and why.
    """
    errors = known_errors(stderr)
    observed = make_observations(X, y, bounds)
    observed = weigh(observed, link, joined(errors, sampling))
    fit = _find_terms(X, observed, link, shrunk=kind != "quadratic")
    process = fit_process_behind(observed, link, errors, sampling)
    if kind == "residual_gp":
        return _with_process(fit, process, bounds)
    if kind != "auto":
        return _as_quadratic(fit, process, bounds)
    both, plain = _with_process(fit, process, bounds), _quality_of(fit)
    if plain.error < _CLEARLY * both.quality.error:
        quality = replace(plain, other_error=both.quality.error)
        return replace(_as_quadratic(fit, process, bounds), quality=quality)
    return replace(both, quality=replace(both.quality, other_error=plain.error))


@dataclass(frozen=True, eq=False)
class _Fit:
    """The terms of a quadratic, with the observations that they were fitted to."""

    kind: Kind
    observed: Observations  # shrunk, if the kind asks for it
    link: Link
    terms: FloatArray  # (t,)
    condition: float  # of the design


def _find_terms(
    X: FloatArray, observed: Observations, link: Link, *, shrunk: bool
) -> _Fit:
    """Fit the terms by least squares, or by a ridge of a strength from the data."""
    if not shrunk:
        condition = check_identified(X, observed)
        return _Fit("quadratic", observed, link, fit_terms(observed, link), condition)
    check_distinct(X)
    observed, _ = shrink(observed, link, X.shape[1])
    flat = np.zeros(observed.features.shape[1])
    condition = float(np.linalg.cond(jacobian(observed, Link(), flat)))
    return _Fit("regularized", observed, link, fit_terms(observed, link), condition)


def _as_quadratic(fit: _Fit, process: Process, bounds: FloatArray) -> Surrogate:
    """Return the quadratic as the surrogate, with its misfit from a process."""
    observed, link = fit.observed, fit.link
    s = observed.features @ fit.terms
    unit = unit_covariance(jacobian(observed, link, fit.terms))
    slope = link.derivative(s)
    steepness = float((slope**2).mean())
    noise = float((process.noise() ** 2 * slope**2 * observed.weights).mean())
    misfit = math.nan
    if not np.isnan(unit).any():
        misfit = find_misfit(process, link, fit.terms, unit, noise, steepness)
    return Surrogate(
        quadratic=quadratic_from_terms(fit.terms, _centred(bounds)),
        link=link,
        bounds=bounds.copy(),
        covariance=(steepness * misfit**2 + noise) * unit,
        quality=_quality_of(fit),
        misfit=misfit,
    )


def _quality_of(fit: _Fit) -> FitQuality:
    fitted = fit.link.apply(fit.observed.features @ fit.terms)
    return _quality(fit, fitted, leave_one_out(fit.observed, fit.link, fit.terms))


def _with_process(fit: _Fit, process: Process, bounds: FloatArray) -> Surrogate:
    """Return the surrogate whose mean includes the process."""
    link, lengths = fit.link, process.lengths
    fitted = link.apply(process.best_at_points())
    quality = _quality(fit, fitted, link.apply(process.left_out()))
    return Surrogate(
        quadratic=quadratic_from_terms(process.best_terms(), _centred(bounds)),
        link=link,
        bounds=bounds.copy(),
        covariance=np.zeros((len(fit.terms), len(fit.terms))),
        quality=replace(quality, kind="residual_gp"),
        residual=Residual(process.rows.U, process.best_weights(), lengths),
        process=process,
    )


def _quality(fit: _Fit, fitted: FloatArray, left_out: FloatArray) -> FitQuality:
    y, n_terms = fit.observed.y, len(fit.terms)
    freedom = len(y) - n_terms
    squares = float((fit.observed.weights * (y - fitted) ** 2).sum())
    width = float(np.ptp(y))
    off = math.sqrt(float(((y - left_out) ** 2).mean()))
    return FitQuality(
        n=len(y),
        n_terms=n_terms,
        r2=_r_squared(y, fitted),
        loo_r2=_r_squared(y, left_out),
        condition=fit.condition,
        residual_stderr=math.sqrt(squares / freedom) if freedom > 0 else math.nan,
        error=off / width if width > 0 else 0.0,
        kind=fit.kind,
    )


def _r_squared(y: FloatArray, predicted: FloatArray) -> float:
    scale = float(np.abs(y).max())
    if np.ptp(y) <= 1e-12 * scale:
        # A constant metric leaves nothing to explain: right or wrong is all there is.
        # The tolerance admits links, which cannot quite reach their own bounds.
        close = np.abs(y - predicted).max() <= 1e-5 * max(scale, 1.0)
        return math.nan if np.isnan(predicted).any() else float(close)
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - ((y - predicted) ** 2).sum() / total)


def _centred(bounds: FloatArray) -> FloatArray:
    """Return the bounds (d, 2) that 0 and 1 of the scaled coefficients stand for."""
    lower, upper = bounds.T
    centre = (lower + upper) / 2
    return np.column_stack([centre, centre + (upper - lower)])


def one_thread() -> AbstractContextManager[object]:
    """Limit NumPy and SciPy to one thread of BLAS; torch has threads of its own."""
    return _limit(1)


def all_threads() -> AbstractContextManager[object]:
    """Restore the number of BLAS threads, for other computations."""
    return _limit(_libraries()[1])


def _limit(count: int) -> AbstractContextManager[object]:
    controller = _libraries()[0]
    limit: AbstractContextManager[object] = controller.limit(
        limits=count, user_api=_BLAS
    )
    return limit


@functools.cache
def _libraries() -> tuple[ThreadpoolController, int]:
    controller = ThreadpoolController()
    found = controller.select(user_api=_BLAS).info()
    counts = [library["num_threads"] for library in found]
    return controller, max(counts, default=1)


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
    margin = INVERT_MARGIN if errors is None else _OFF_BOUND * errors
    inner = np.minimum(np.maximum(observed.y, link.lower + margin), link.upper - margin)
    s = link.invert(inner)
    noise = stderr, sampling
    process = _fit(observed, noise, s, link.derivative(s))
    if not link.is_identity:
        s = process.best_at_points()
        slope = link.derivative(s)
        slope = np.maximum(slope, _FLATTEST * slope.max())
        far = _FARTHEST * process.scale
        moved = np.clip((observed.y - link.apply(s)) / slope, -far, far)
        process = _fit(observed, noise, s + moved, slope, process.theta)
    return averaged(process, known_noise=stderr is not None)


def _fit(
    observed: Observations,
    errors: tuple[FloatArray | None, FloatArray | None],
    z: FloatArray,
    slope: FloatArray,
    start: FloatArray | None = None,
) -> Process:
    stderr, sampled = errors
    noise = (float(observed.y.std()) or 1.0) if stderr is None else stderr
    sampling = np.zeros(1) if sampled is None else (sampled / slope) ** 2
    rows = Rows(observed.U, (noise / slope) ** 2, sampling)
    return fit_process(rows, z, known_noise=stderr is not None, start=start)


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
