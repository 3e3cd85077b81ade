"""Fit of one metric's surrogate and of its uncertainty (section 3.1, eq. 2 to 5).

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
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which is to be found
from threadpoolctl import ThreadpoolController

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import Process, averaged, fit_process
from mergekit_map.surrogates.kernel import Rows
from mergekit_map.surrogates.least_squares import fit_terms, leave_one_out, weigh
from mergekit_map.surrogates.links import INVERT_MARGIN, Link
from mergekit_map.surrogates.observations import (
    Observations,
    check_distinct,
    check_identified,
    joined,
    known_errors,
    make_observations,
)
from mergekit_map.surrogates.quadratic import quadratic_from_terms
from mergekit_map.surrogates.surrogate import FitQuality, Surrogate
from mergekit_map.types import SurrogateKind

# The share of the process's left-out error that the quadratic's must be below: with few
# merges these are noisy, and the process predicts better on average.
_CLEARLY = 0.7
_BLAS = "blas"
# A noisy point of a bounded metric is taken off its bound by so many standard errors;
# where the link is flatter than this share of its steepest slope, it tells nothing; and
# it is moved on the latent scale by so many standard deviations at most.
_OFF_BOUND, _FLATTEST, _FARTHEST = 0.5, 0.02, 3.0


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
    errors = known_errors(stderr)
    observed = make_observations(X, y, bounds)
    if kind == "quadratic":
        check_identified(X, observed)
    else:
        check_distinct(X)
    data = _Data(observed, errors, sampling, link, bounds)
    believed = averaged(data.process(), known_noise=errors is not None)
    if kind == "quadratic":
        return data.by_least_squares(believed)
    if kind == "regularized":
        return data.regularized(believed)
    if kind == "residual_gp":
        return data.by_process(believed)
    taken, other = data.by_process(believed), data.regularized(believed)
    if other.quality.error < _CLEARLY * taken.quality.error:
        taken, other = other, taken
    quality = replace(taken.quality, other_error=other.quality.error)
    return replace(taken, quality=quality)


@dataclass(frozen=True, eq=False)
class _Data:
    """The measurements of one metric, with what each kind of surrogate makes of them.

    ``believed`` is the process fitted to them, averaged over its hyperparameters.
    """

    observed: Observations
    stderr: FloatArray | None  # (n,) positive; None if unknown
    sampling: FloatArray | None  # (n,) of a subset of documents; None if all
    link: Link
    bounds: FloatArray  # (d, 2)

    def by_least_squares(self, believed: Process) -> Surrogate:
        """Return the quadratic of the paper, by weighted least squares."""
        weighted = weigh(self.observed, joined(self.stderr, self.sampling))
        link = self.link
        terms = fit_terms(weighted, link)
        fitted = link.apply(weighted.features @ terms)
        left_out = leave_one_out(weighted, link, terms)
        return self._surrogate("quadratic", believed, fitted, left_out, terms)

    def regularized(self, believed: Process) -> Surrogate:
        """Return the quadratic with normal priors of its terms."""
        process = self.process(quadratic=True)
        fitted = self.link.apply(self.observed.features @ process.terms)
        left_out = self.link.apply(process.left_out())
        return self._surrogate("regularized", believed, fitted, left_out, process.terms)

    def by_process(self, believed: Process) -> Surrogate:
        """Return the surrogate that predicts the mean of the process."""
        fitted = self.link.apply(believed.mean(self.observed.U))
        left_out = self.link.apply(believed.left_out())
        return self._surrogate("residual_gp", believed, fitted, left_out)

    def _surrogate(
        self,
        kind: str,
        believed: Process,
        fitted: FloatArray,
        left_out: FloatArray,
        terms: FloatArray | None = None,
    ) -> Surrogate:
        y, features = self.observed.y, self.observed.features
        n, n_terms = features.shape
        freedom, width = n - n_terms, float(np.ptp(y))
        squares = float(((y - fitted) ** 2).sum())
        off = math.sqrt(float(((y - left_out) ** 2).mean()))
        quality = FitQuality(
            n=n,
            n_terms=n_terms,
            r2=_r_squared(y, fitted),
            loo_r2=_r_squared(y, left_out),
            condition=float(np.linalg.cond(features)) if freedom >= 0 else math.inf,
            residual_stderr=math.sqrt(squares / freedom) if freedom > 0 else math.nan,
            error=off / width if width > 0 else 0.0,
            kind=kind,
        )
        quadratic = None
        if terms is not None:
            quadratic = quadratic_from_terms(terms, _centred(self.bounds))
        return Surrogate(self.link, self.bounds.copy(), quality, believed, quadratic)

    def process(self, *, quadratic: bool = False) -> Process:
        """Fit a process to the measurements, transformed by the inverse link.

        The link is linearised at each measured value, then at the value that the first
        process predicts, as a noisy accuracy of 0 is not minus infinity. A
        ``quadratic`` is a process without its kernel.
        """
        y, link = self.observed.y, self.link
        errors = joined(self.stderr, self.sampling)
        margin = INVERT_MARGIN if errors is None else _OFF_BOUND * errors
        inner = np.minimum(np.maximum(y, link.lower + margin), link.upper - margin)
        fit = functools.partial(
            fit_process, known_noise=self.stderr is not None, quadratic=quadratic
        )
        s = link.invert(inner)
        process = fit(self._rows(link.derivative(s)), s)
        if link.is_identity:
            return process
        s = process.mean(self.observed.U)
        slope = link.derivative(s)
        slope = np.maximum(slope, _FLATTEST * slope.max())
        far = _FARTHEST * process.scale
        moved = np.clip((y - link.apply(s)) / slope, -far, far)
        return fit(self._rows(slope), s + moved, start=process.theta)

    def _rows(self, slope: FloatArray) -> Rows:
        """Return the rows of a process where the link has these slopes (n,)."""
        y, sampling = self.observed.y, self.sampling
        noise = (float(y.std()) or 1.0) if self.stderr is None else self.stderr
        sampled = np.zeros(1) if sampling is None else (sampling / slope) ** 2
        return Rows(self.observed.U, (noise / slope) ** 2, sampled)


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
