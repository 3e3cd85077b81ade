"""The surrogate of one metric, with its uncertainty (section 3.1, eq. 2 to 5).

Notation: ``n`` evaluated merges, ``d`` coefficients, ``X`` (n, d) the coefficients,
``y`` (n,) one metric, larger is better, ``t = (d + 1)(d + 2) / 2`` terms. All is fitted
on coefficients scaled to [-1/2, 1/2] by the bounds of the search.

Beyond the paper: measured standard errors weigh the fit, each fit reports its
leave-one-out R2, the terms may be shrunk, and a Gaussian process may model the
residuals of the quadratic. Whatever predicts, its errors are those that this process
expects, averaged over the hyperparameters: a quadratic errs by its shape, too.

Fits and fronts use one thread of BLAS, as their matrices are small. More threads wait
for each other longer than they work. They also round the last digits differently, so
that a front would depend on the number of cores.
"""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which is to be found
from threadpoolctl import ThreadpoolController

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import (
    Process,
    averaged,
    fit_process,
    prediction_stderr,
)
from mergekit_map.surrogates.kernel import Rows
from mergekit_map.surrogates.least_squares import (
    Observations,
    check_distinct,
    check_identified,
    fit_terms,
    leave_one_out,
    weigh,
)
from mergekit_map.surrogates.links import INVERT_MARGIN, Link
from mergekit_map.surrogates.quadratic import quadratic_features, scaled
from mergekit_map.types import SurrogateKind

# The share of the process's left-out error that the quadratic's must be below: with few
# merges these are noisy, and the process predicts better on average.
_CLEARLY = 0.7
_BLAS = "blas"
# A noisy point of a bounded metric is taken off its bound by so many standard errors;
# where the link is flatter than this share of its steepest slope, it tells nothing; and
# it is moved on the latent scale by so many standard deviations at most.
_OFF_BOUND, _FLATTEST, _FARTHEST = 0.5, 0.02, 3.0


@dataclass(frozen=True)
class FitQuality:
    """The quality of a fit; NaN where too few points leave it undefined."""

    n: int  # evaluated merges
    r2: float  # on the fitted points, in the metric's units, unweighted
    loo_r2: float  # each point predicted by the fit without it; NaN if none can be
    error: float  # of predictions left out, as a share of the range seen
    kind: str  # what was taken


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A metric as a function of the coefficients, with its uncertainty."""

    link: Link
    bounds: FloatArray  # (d, 2), the box that the process is scaled by
    quality: FitQuality
    process: Process  # what is believed of the latent metric
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
    """Fit the surrogate of one metric.

    A metric that is constant over all points is fitted like any other; its R2 is 1 if
    the residuals are rounding, else 0. Repeated rows are used, but only distinct ones
    count towards identifying the quadratic. Values outside the link's range are used
    as they are by the quadratic.

    Args:
        X: (n, d) finite coefficients, inside the bounds or not.
        y: (n,) finite metric values; the caller leaves out merges that failed.
        stderr: (n,) their standard errors, NaN where unknown; None if all are. If none
            is positive, all points count alike.
        link: The range of the metric.
        bounds: (d, 2) the box of the search, used as the unit of each coefficient.
        kind: "quadratic", by weighted least squares: case 1 (identity link) in closed
            form, the others by Levenberg-Marquardt from the closed-form fits of the
            inverted data; "regularized", with normal priors of the terms, which does
            with fewer points than terms; "residual_gp", that with a Gaussian process
            for what the quadratic leaves; or "auto", the latter, unless the left-out
            errors of the regularized quadratic are clearly smaller.
        sampling: (n,) standard errors of values that are estimates from some documents,
            0 where all were measured; None if they were everywhere.

    Raises:
        DesignError: X does not identify all t terms, with what is missing and why.
    """
    data = _Data(scaled(X, bounds), y, known_errors(stderr), sampling, link, bounds)
    if kind == "quadratic":
        check_identified(X, data.features)
        return data.by_least_squares()
    check_distinct(X)
    if kind == "regularized":
        return data.regularized()
    if kind == "residual_gp":
        return data.by_process()
    process, quadratic = data.by_process(), data.regularized()
    clearly_less = quadratic.quality.error < _CLEARLY * process.quality.error
    return quadratic if clearly_less else process


@dataclass(frozen=True, eq=False)
class _Data:
    """The measurements of one metric, with what each kind of surrogate makes of them.

    All kinds have the errors of the process fitted to them, averaged over its
    hyperparameters.
    """

    U: FloatArray  # (n, d) scaled coefficients
    y: FloatArray  # (n,)
    stderr: FloatArray | None  # (n,) positive; None if unknown
    sampling: FloatArray | None  # (n,) of a subset of documents; None if all
    link: Link
    bounds: FloatArray  # (d, 2)

    @functools.cached_property
    def features(self) -> FloatArray:
        """Return the features of the quadratic; (n, t)."""
        return quadratic_features(self.U)

    @functools.cached_property
    def errors(self) -> FloatArray | None:
        """Return all standard errors, those of document subsets included; (n,)."""
        if self.stderr is None or self.sampling is None:
            return self.sampling if self.stderr is None else self.stderr
        return np.hypot(self.stderr, self.sampling)

    @functools.cached_property
    def believed(self) -> Process:
        """Return the process, averaged over its hyperparameters."""
        return averaged(self.process(), known_noise=self.stderr is not None)

    def by_least_squares(self) -> Surrogate:
        """Return the quadratic of the paper, by weighted least squares."""
        rows = Observations(self.features, self.y, weigh(self.y, self.errors))
        terms = fit_terms(rows, self.link)
        left_out = leave_one_out(rows, self.link, terms)
        return self._surrogate("quadratic", left_out, terms)

    def regularized(self) -> Surrogate:
        """Return the quadratic with normal priors of its terms."""
        process = self.process(quadratic=True)
        left_out = self.link.apply(process.left_out())
        return self._surrogate("regularized", left_out, process.terms)

    def by_process(self) -> Surrogate:
        """Return the surrogate that predicts the mean of the process."""
        return self._surrogate("residual_gp", self.link.apply(self.believed.left_out()))

    def _surrogate(
        self, kind: str, left_out: FloatArray, terms: FloatArray | None = None
    ) -> Surrogate:
        y, process = self.y, self.believed
        latent = process.mean(self.U) if terms is None else self.features @ terms
        width = float(np.ptp(y))
        off = math.sqrt(float(((y - left_out) ** 2).mean()))
        quality = FitQuality(
            n=len(y),
            r2=_r_squared_or_right(y, self.link.apply(latent)),
            loo_r2=_r_squared_or_right(y, left_out),
            error=off / width if width > 0 else 0.0,
            kind=kind,
        )
        return Surrogate(self.link, self.bounds.copy(), quality, process, terms)

    def process(self, *, quadratic: bool = False) -> Process:
        """Fit a process to the measurements, transformed by the inverse link.

        The link is linearised at each measured value, then at the value that the first
        process predicts, as a noisy accuracy of 0 is not minus infinity. A
        ``quadratic`` is a process without its kernel.
        """
        y, link = self.y, self.link
        margin = INVERT_MARGIN if self.errors is None else _OFF_BOUND * self.errors
        inner = np.minimum(np.maximum(y, link.lower + margin), link.upper - margin)
        fit = functools.partial(
            fit_process, known_noise=self.stderr is not None, quadratic=quadratic
        )
        s = link.invert(inner)
        process = fit(self._rows(link.derivative(s)), s)
        if link.is_identity:
            return process
        s = process.mean(self.U)
        slope = link.derivative(s)
        slope = np.maximum(slope, _FLATTEST * slope.max())
        far = _FARTHEST * process.scale
        moved = np.clip((y - link.apply(s)) / slope, -far, far)
        return fit(self._rows(slope), s + moved, start=process.theta)

    def _rows(self, slope: FloatArray) -> Rows:
        """Return the rows of a process where the link has these slopes (n,)."""
        y, sampling = self.y, self.sampling
        noise = (float(y.std()) or 1.0) if self.stderr is None else self.stderr
        sampled = np.zeros(1) if sampling is None else (sampling / slope) ** 2
        return Rows(self.U, (noise / slope) ** 2, sampled)


def known_errors(stderr: FloatArray | None) -> FloatArray | None:
    """Fill standard errors (n,) so that all are positive; None where none is known.

    An error of 0, as of an accuracy of 0 or 1, becomes the smallest positive one. An
    unknown error, NaN, becomes the median of the known ones.
    """
    if stderr is None or not (stderr > 0).any():
        return None
    known = np.where(stderr == 0, stderr[stderr > 0].min(), stderr)
    return np.where(np.isnan(known), np.nanmedian(known), known)


def r_squared(y: FloatArray, predicted: FloatArray) -> float:
    """Return the share of the variance of y (n,) that predictions (n,) explain.

    1 is perfect, 0 is as good as the mean of y, which is not known to the surrogate,
    and there is no lower limit. NaN where y is constant: there is nothing to explain.
    """
    if np.ptp(y) <= 1e-12 * np.abs(y).max():
        return math.nan
    total = ((y - y.mean()) ** 2).sum()
    return float(1 - ((y - predicted) ** 2).sum() / total)


def _r_squared_or_right(y: FloatArray, predicted: FloatArray) -> float:
    """Return R2; of a constant metric whether it is right, which is all there is."""
    found = r_squared(y, predicted)
    if not math.isnan(found) or np.isnan(predicted).any():
        return found
    # The tolerance admits links, which cannot quite reach their own bounds.
    return float(np.abs(y - predicted).max() <= 1e-5 * max(np.abs(y).max(), 1.0))


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
