"""The mean of a Gaussian process, added to a quadratic behind the link."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.kernel import distances, matern


@dataclass(frozen=True, eq=False)
class Residual:
    """A weighted sum of kernels centred on the measured points."""

    points: FloatArray  # (n, d)
    weights: FloatArray  # (n,) the height of each bump
    lengths: FloatArray  # (d,) how far one reaches, in widths of the box
    gaussian: bool = False  # the bumps' shape, as runs of version 1 have it

    def predict(self, U: FloatArray) -> FloatArray:
        """Evaluate the sum at every row of U (k, d)."""
        far = distances(U / self.lengths, self.points / self.lengths)
        bumps = np.exp(-(far**2) / 2) if self.gaussian else matern(far)
        return np.asarray(bumps @ self.weights)


def residual_of_version_1(
    points: FloatArray, left: FloatArray, scale: float, theta: FloatArray
) -> Residual:
    """Rebuild a process that has one length scale for all coefficients.

    Args:
        points: (n, d)
        left: (n,) what the quadratic left there.
        scale: What ``left`` is divided by.
        theta: Logarithms of height, length and noise of the kernel, as variances.
    """
    height, length, noise = np.exp(theta[:3])
    lengths = np.full(points.shape[1], length)
    squares = (((points[:, None] - points) / lengths) ** 2).sum(axis=2)
    covariance = height * np.exp(-squares / 2) + noise * np.eye(len(points))
    pull = np.linalg.lstsq(covariance, left / scale, rcond=None)[0]  # singular or not
    return Residual(points, scale * height * pull, lengths, gaussian=True)
