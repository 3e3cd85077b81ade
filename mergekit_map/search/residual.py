"""What a quadratic leaves unexplained, as a Gaussian process (beyond the paper).

For metrics of which leave-one-out R2 shows that the quadratic has the wrong shape. Used
by ``surrogate`` alone, behind the link, so that predictions keep to the metric's range.

Notation: ``n`` points, ``d`` coefficients, ``U`` (n, d) scaled to [-1/2, 1/2] by the
bounds of the search, ``r`` (n,) what is left at each point.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from mergekit_map.search.arrays import FloatArray

# Of the box: shorter waves could not be told from noise by a few dozen points, longer
# ones are quadratics.
_WAVE_LENGTHS = (0.2, 5.0)
_NOISE = (1e-6, 1.0)  # share of the variance of r that the process does not explain


@dataclass(frozen=True, eq=False)
class Residual:
    """A fitted process; the same data give the same one."""

    U: FloatArray  # (n, d)
    r: FloatArray  # (n,)
    scale: float  # standard deviation of r, 1 where that is 0
    theta: FloatArray  # logarithms of height, wave length and noise

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard error of what is left at every row of U (k, d)."""
        mean, stderr = self._process().predict(U, return_std=True)
        noise = np.exp(self.theta[2])  # of a new measurement, which is not asked for
        variance = np.maximum(stderr**2 - noise, 0)
        return mean * self.scale, np.sqrt(variance) * self.scale

    def left_out(self) -> FloatArray:
        """Predict r at every point by the process of the other points: (n,)."""
        process = self._process()
        inverse = np.linalg.inv(process.kernel_(self.U))
        rest: FloatArray = process.alpha_ / np.diag(inverse)
        return self.r - rest * self.scale

    def _process(self) -> GaussianProcessRegressor:
        kernel = _kernel().clone_with_theta(self.theta)
        process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
        return process.fit(self.U, self.r / self.scale)


def fit_residual(U: FloatArray, r: FloatArray) -> Residual:
    """Fit height, wave length and noise of the process by maximum likelihood."""
    scale = float(r.std()) or 1.0
    process = GaussianProcessRegressor(_kernel(), alpha=0.0)
    with warnings.catch_warnings():
        # An end of the ranges above is an answer like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(U, r / scale)
    return Residual(U, r, scale, np.asarray(process.kernel_.theta, dtype=np.float64))


def _kernel() -> Any:
    height = ConstantKernel(1.0, (1e-4, 1e3))
    return height * RBF(1.0, _WAVE_LENGTHS) + WhiteKernel(1e-2, _NOISE)
