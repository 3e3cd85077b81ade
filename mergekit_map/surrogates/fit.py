"""The surrogate of one metric, with its uncertainty (section 3.1, eq. 2 to 5).

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, ``t = (d + 1)(d + 2) / 2`` terms. All is fitted
on coefficients scaled to [-1/2, 1/2] by the bounds of the search.

Beyond the paper: measured standard errors weigh the fit, each fit reports its
leave-one-out R2, the terms may be shrunk, and a Gaussian process may model the
residuals of the quadratic, both as functions of effects that may saturate. Whatever
predicts, its errors are those that this process expects, averaged over the
hyperparameters: a quadratic errs by its shape, too.

Fits and fronts use one thread of BLAS, as their matrices are small. More threads round
the last digits differently, so that a front would depend on the number of cores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.linalg  # noqa: F401 - loads SciPy's own BLAS, for ``one_thread``
from threadpoolctl import ThreadpoolController

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, scaled
from mergekit_map.surrogates.gaussian_process import (
    GaussianProcess,
    TrainingData,
    fit_gaussian_process,
    marginalize,
    prediction_stderr,
)
from mergekit_map.surrogates.quadratic import (
    INVERT_MARGIN,
    RANK_TOLERANCE,
    Link,
    Observations,
    fit_terms,
    leave_one_out,
    observation_weights,
    quadratic_features,
)
from mergekit_map.types import SurrogateKind

# "auto" chooses the quadratic if its leave-one-out error is below this share of the
# process's. Both are noisy with few merges; on average the process predicts better.
_CLEARLY_SMALLER = 0.7
_BOUND_MARGIN = 1.0  # standard errors that a noisy value is kept off its bounds
_MIN_SLOPE = 0.02  # of a link, as a share of its steepest slope at the measured values
_MAX_CORRECTION = 3.0  # of a latent value, in standard deviations
_N_LINEARIZATIONS = 4  # of a link; most settle after the first
_SETTLED = 0.05  # change of a latent value, in standard deviations


@dataclass(frozen=True)
class FitQuality:
    """The quality of a fit; NaN where too few points leave it undefined."""

    n: int  # evaluated merges
    r2: float  # on the fitted points, in the metric's units, unweighted
    loo_r2: float  # each point predicted by the fit without it; NaN if none can be
    loo_error: float  # root mean square, as a share of the range of the values
    kind: str  # of the surrogate


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A metric as a function of the coefficients, with its uncertainty."""

    link: Link
    bounds: FloatArray  # (d, 2), the box that the process is scaled by
    quality: FitQuality
    process: GaussianProcess  # of the latent metric, for the errors
    terms: FloatArray | None  # (t,) of the quadratic that predicts; None: the process

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict the metric, in its own units, at every row of X (k, d)."""
        return self.link.apply(self._latent(scaled(X, self.bounds)))

    def stderr(self, X: FloatArray) -> FloatArray:
        """Return the standard error of the prediction at every row of X (k, d).

        A standard error in the metric's units, of fit, noise and shape, but without
        the noise of a new measurement: 95 % of the truth is within 1.96 of them.
        """
        U = scaled(X, self.bounds)
        return prediction_stderr(self.process, self.link, U, self._latent(U))

    def _latent(self, U: FloatArray) -> FloatArray:
        if self.terms is None:
            return self.process.mean(U)
        return np.asarray(quadratic_features(U) @ self.terms)


Surrogates: TypeAlias = Mapping[str, Surrogate]  # by task


def fit_surrogate(
    X: FloatArray,
    y: FloatArray,
    *,
    stderr: FloatArray | None,
    link: Link,
    bounds: FloatArray,
    kind: SurrogateKind = "quadratic",
    sampling: FloatArray | None = None,
) -> Surrogate:
    """Fit the surrogate of one metric to finite values y (n,) at coefficients X (n, d).

    ``bounds`` (d, 2) are those of the search, the unit of each coefficient; none of X
    is below. ``stderr`` (n,) is NaN where unknown, None if all are; without a positive
    one all points count alike. ``sampling`` (n,) has the standard errors of values that
    are estimates from some documents, 0 where all were measured; None if they were
    everywhere.

    "quadratic" is fitted by weighted least squares. "regularized" has normal priors of
    the terms, and does with fewer points than terms. "residual_gp" adds a Gaussian
    process for what that leaves, of effects that may saturate; "auto" does so unless
    the left-out errors of the regularized quadratic are clearly smaller.

    A constant metric is fitted like any other; its R2 is 1 if the residuals are
    rounding, else 0. Of repeated rows, one counts towards identifying the quadratic.
    Values outside the link's range are used as they are by the quadratic. Raises
    DesignError, with what is missing and why, if X does not identify all t terms.
    """
    stderr = fill_in_stderr(stderr)
    sampling = np.zeros_like(y) if sampling is None else sampling
    data = _MetricData(scaled(X, bounds), y, stderr, sampling, link, bounds)
    if kind == "quadratic":
        _check_identified(X, data.features)
        return data.fit_quadratic()
    d, n_distinct = X.shape[1], len(np.unique(X, axis=0))
    if n_distinct < 3:  # which show no curvature
        raise DesignError(
            f"a surrogate in {d} coefficients needs at least 3 distinct merges, but "
            f"only {n_distinct} were evaluated; evaluate at least {3 - n_distinct} more"
        )
    if kind == "regularized":
        return data.fit_regularized()
    process = data.fit_residual_gp()
    if kind == "residual_gp":
        return process
    quadratic = data.fit_regularized()
    limit = _CLEARLY_SMALLER * process.quality.loo_error
    return quadratic if quadratic.quality.loo_error < limit else process


def _check_identified(X: FloatArray, features: FloatArray) -> None:
    d, n_terms = X.shape[1], features.shape[1]
    if (n_distinct := len(np.unique(X, axis=0))) < n_terms:
        raise DesignError(
            f"a full quadratic in {d} coefficients has {n_terms} parameters, but only "
            f"{n_distinct} distinct merges were evaluated; evaluate at least "
            f"{n_terms - n_distinct} more"
        )
    singular_values = np.linalg.svd(features, compute_uv=False)
    rank = int((singular_values > RANK_TOLERANCE * singular_values[0]).sum())
    if rank < n_terms:
        raise DesignError(
            f"{n_distinct} distinct merges identify only {rank} of {n_terms} "
            "parameters: the design is degenerate (weights that sum to 1, a fixed "
            "coefficient, one with two levels), and more such merges do not help; free "
            "or leave out the coefficient, or allow more evaluations than are imported"
        )


@dataclass(frozen=True, eq=False)
class _MetricData:
    """The measurements of one metric, and the surrogates fitted to them."""

    U: FloatArray  # (n, d) scaled coefficients
    y: FloatArray  # (n,)
    stderr: FloatArray | None  # (n,) positive; None if unknown
    sampling: FloatArray  # (n,) of the choice of documents, 0 where all were measured
    link: Link
    bounds: FloatArray  # (d, 2)

    @functools.cached_property
    def features(self) -> FloatArray:
        """Return the features of the quadratic; (n, t)."""
        return quadratic_features(self.U)

    @functools.cached_property
    def total_stderr(self) -> FloatArray | None:
        """Return all standard errors, those of document subsets included; (n,)."""
        if self.stderr is None:
            return self.sampling if self.sampling.any() else None
        return np.hypot(self.stderr, self.sampling)

    @functools.cached_property
    def marginalized_process(self) -> GaussianProcess:
        return marginalize(self.fit_process())

    def fit_quadratic(self) -> Surrogate:
        weights = observation_weights(self.y, self.total_stderr)
        observed = Observations(self.features, self.y, weights)
        terms = fit_terms(observed, self.link)
        loo = leave_one_out(observed, self.link, terms)
        return self._surrogate("quadratic", loo, terms)

    def fit_regularized(self) -> Surrogate:
        process = self.fit_process(quadratic_only=True)
        loo = self.link.apply(process.leave_one_out())
        return self._surrogate("regularized", loo, process.terms)

    def fit_residual_gp(self) -> Surrogate:
        loo = self.link.apply(self.marginalized_process.leave_one_out())
        return self._surrogate("residual_gp", loo)

    def _surrogate(
        self, kind: str, loo: FloatArray, terms: FloatArray | None = None
    ) -> Surrogate:
        """Return a surrogate, whose leave-one-out predictions are ``loo`` (n,)."""
        y = self.y
        process = self.marginalized_process
        latent = process.mean(self.U) if terms is None else self.features @ terms
        value_range = float(np.ptp(y))
        rmse = math.sqrt(float(((y - loo) ** 2).mean()))
        quality = FitQuality(
            n=len(y),
            r2=_r_squared_or_exact(y, self.link.apply(latent)),
            loo_r2=_r_squared_or_exact(y, loo),
            loo_error=rmse / value_range if value_range > 0 else 0.0,
            kind=kind,
        )
        return Surrogate(self.link, self.bounds.copy(), quality, process, terms)

    def fit_process(self, *, quadratic_only: bool = False) -> GaussianProcess:
        """Fit a process to the measurements, transformed by the inverse link.

        The link is linearised at each measured value. As a noisy accuracy of 0 is not
        minus infinity, it is linearised again at what the process predicts.
        """
        link = self.link
        fit = functools.partial(fit_gaussian_process, quadratic_only=quadratic_only)
        stderr = self.total_stderr
        margin = INVERT_MARGIN if stderr is None else _BOUND_MARGIN * stderr
        margin = np.minimum(margin, (link.upper - link.lower) / 2)
        latent = link.invert(np.clip(self.y, link.lower + margin, link.upper - margin))
        of_measured = link.derivative(latent)
        process = fit(self._training_data(of_measured), latent)
        predicted = process.mean(self.U)
        for _ in range(0 if link.is_identity else _N_LINEARIZATIONS):
            steepness = link.derivative(predicted)
            slopes = np.maximum(steepness, _MIN_SLOPE * steepness.max())
            limit = _MAX_CORRECTION * process.scale
            errors = (self.y - link.apply(predicted)) / slopes
            latent = predicted + np.clip(errors, -limit, limit)
            # Of counts, the variance at the prediction, p(1-p)/n, not that of luck.
            spread = slopes if stderr is None else np.sqrt(slopes * of_measured)
            process = fit(self._training_data(spread), latent, start=process.mode.theta)
            before, predicted = predicted, process.mean(self.U)
            if np.abs(predicted - before).max() < _SETTLED * process.scale:
                break
        return process

    def _training_data(self, slopes: FloatArray) -> TrainingData:
        """Return the merges with latent noise, where the link has these slopes (n,)."""
        unit = float(self.y.std()) or INVERT_MARGIN
        noise = unit if self.stderr is None else self.stderr
        variances = (noise / slopes) ** 2, (self.sampling / slopes) ** 2
        return TrainingData(self.U, *variances, self.stderr is not None)


def fill_in_stderr(stderr: FloatArray | None) -> FloatArray | None:
    """Make standard errors (n,) known and positive; None where none is positive.

    An error of 0, as of an accuracy of 0 or 1, becomes the smallest positive one. An
    unknown error, NaN, becomes the median of the known ones.
    """
    if stderr is None or not (stderr > 0).any():
        return None
    positive = np.where(stderr == 0, stderr[stderr > 0].min(), stderr)
    return np.where(np.isnan(positive), np.nanmedian(positive), positive)


def r_squared(y: FloatArray, predicted: FloatArray) -> float:
    """Return the share of the variance of y (n,) that is predicted; NaN if constant."""
    if np.ptp(y) <= 1e-12 * np.abs(y).max():
        return math.nan
    return float(1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def _r_squared_or_exact(y: FloatArray, predicted: FloatArray) -> float:
    """Return R2; of a constant metric 1 if it is predicted exactly, else 0."""
    r2 = r_squared(y, predicted)
    if not math.isnan(r2) or np.isnan(predicted).any():
        return r2
    # The tolerance admits links, which cannot quite reach their own bounds.
    return float(np.abs(y - predicted).max() <= 1e-5 * max(np.abs(y).max(), 1.0))


def one_thread() -> AbstractContextManager[object]:
    """Limit NumPy and SciPy to one thread of BLAS; torch has threads of its own."""
    return _limit_threads(1)


def all_threads() -> AbstractContextManager[object]:
    """Restore the number of BLAS threads, for other computations."""
    return _limit_threads(_blas_libraries()[1])


def _limit_threads(count: int) -> AbstractContextManager[object]:
    limit: AbstractContextManager[object] = _blas_libraries()[0].limit(limits=count)
    return limit


@functools.cache
def _blas_libraries() -> tuple[ThreadpoolController, int]:
    """Return the controller of BLAS, and its default number of threads."""
    blas = ThreadpoolController().select(user_api="blas")
    return blas, max((library["num_threads"] for library in blas.info()), default=1)
