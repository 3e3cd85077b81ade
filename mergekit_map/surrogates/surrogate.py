"""The surrogate of one metric: predictions from coefficients, with standard errors.

Notation: ``d`` coefficients, ``X`` (k, d) rows of them. ``fit`` makes surrogates from
measurements.

Beyond the paper: predictions carry standard errors, which include the error of the
shape, and may be the mean of a Gaussian process in place of a quadratic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import Process, prediction_stderr
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.observations import scaled
from mergekit_map.surrogates.quadratic import Quadratic


@dataclass(frozen=True)
class FitQuality:
    """The quality of a fit; NaN where too few points leave it undefined."""

    n: int  # evaluated merges
    n_terms: int  # parameters of the quadratic
    r2: float  # on the fitted points, in the metric's units, unweighted
    loo_r2: float  # each point predicted by the fit without it; NaN if none can be
    condition: float  # of the design: largest over smallest singular value
    residual_stderr: float  # standard error of the residuals; NaN if n <= n_terms
    error: float = np.nan  # of predictions left out, as a share of the range seen
    kind: str = "quadratic"  # what was taken
    other_error: float = np.nan  # of what was not taken, where there was a choice


@dataclass(frozen=True, eq=False)
class Surrogate:
    """A metric as a function of the coefficients, with its uncertainty."""

    link: Link
    bounds: FloatArray  # (d, 2), the box that the process is scaled by
    quality: FitQuality
    process: Process  # what is believed of the latent metric
    quadratic: Quadratic | None = None  # which predicts; the mean of the process if not

    def predict(self, X: FloatArray) -> FloatArray:
        """Predict the metric, in its own units, at every row of X (k, d)."""
        return self.link.apply(self._latent(X))

    def stderr(self, X: FloatArray) -> FloatArray:
        """Return the standard error of the prediction at every row of X (k, d).

        A standard error in the metric's units, of fit, noise and shape, but without
        the noise of a new measurement: 95 % of the truth is within 1.96 of them.
        """
        U = scaled(X, self.bounds)
        return prediction_stderr(self.process, self.link, U, self._latent(X))

    def _latent(self, X: FloatArray) -> FloatArray:
        if self.quadratic is not None:
            return self.quadratic.predict(X)
        return self.process.mean(scaled(X, self.bounds))
