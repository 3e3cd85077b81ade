"""The surrogate of one metric: predictions from coefficients, with standard errors.

Notation: ``d`` coefficients, ``X`` (k, d) rows of them, ``t = (d + 1)(d + 2) / 2`` the
terms of the quadratic, whose covariance is that on coefficients scaled to [-1/2, 1/2]
by the bounds of the search. ``fit`` makes surrogates from measurements.

Beyond the paper: predictions carry standard errors, which include the error of the
shape, and a Gaussian process may model the residuals of the quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import (
    Process,
    prediction_stderr,
    stderr_in_metric,
)
from mergekit_map.surrogates.kernel import Residual
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.observations import scaled
from mergekit_map.surrogates.quadratic import Quadratic, quadratic_features


@dataclass(frozen=True)
class FitQuality:
    """The quality of a fit; NaN where too few points leave it undefined."""

    n: int  # evaluated merges
    n_terms: int  # parameters of the quadratic
    r2: float  # on the fitted points, in the metric's units, unweighted
    loo_r2: float  # each point predicted by the fit without it; NaN if none can be
    condition: float  # of the design: largest over smallest singular value
    residual_stderr: float  # of a point of average weight; NaN if n == n_terms
    error: float = np.nan  # of predictions left out, as a share of the range seen
    kind: str = "quadratic"  # what was taken
    other_error: float = np.nan  # of what was not taken, where there was a choice


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A metric as a function of the coefficients, with its uncertainty."""

    quadratic: Quadratic  # in the user's own coefficients
    link: Link
    bounds: FloatArray  # (d, 2), the ends that -1/2 and 1/2 stand for in the covariance
    covariance: FloatArray  # (t, t) of the terms on scaled coefficients
    quality: FitQuality
    residual: Residual | None = None  # added to the quadratic, behind the link
    misfit: float = 0.0  # of the shape: a standard deviation behind the link
    process: Process | None = None  # tells the standard errors, where there is one

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict the metric, in its own units, at every row of X (k, d)."""
        return self.link.apply(self._behind_link(X))

    def stderr(self, X: FloatArray) -> FloatArray:
        """Return the standard error of the prediction at every row of X (k, d).

        A standard error in the metric's units, of fit, noise and misfit, but without
        the noise of a new measurement: 95 % of the truth is within 1.96 of them.
        ``fit`` explains how. NaN where the covariance is unknown.
        """
        s, U = self._behind_link(X), scaled(X, self.bounds)
        if self.process is not None:
            return prediction_stderr(self.process, self.link, U, s)
        features = quadratic_features(U)
        variance = ((features @ self.covariance) * features).sum(axis=1)
        # Rounding may leave a variance of zero slightly negative.
        deviation = np.sqrt(np.maximum(variance, 0) + self.misfit**2)
        return stderr_in_metric(self.link, s, deviation)

    def _behind_link(self, X: FloatArray) -> FloatArray:
        s = self.quadratic.predict(X)
        if self.residual is None:
            return s
        return s + self.residual.predict(scaled(X, self.bounds))
