"""What a quadratic leaves unexplained, as the mean of a Gaussian process.

Added to the quadratic behind the link, so that predictions keep to the metric's range.
Notation: ``n`` points and ``U`` (k, d), scaled to [-1/2, 1/2] by the bounds of the
search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.kernel import distances, matern


@dataclass(frozen=True, eq=False)
class Residual:
    """A sum of bumps around the points that were measured."""

    points: FloatArray  # (n, d)
    weights: FloatArray  # (n,) the height of each bump
    lengths: FloatArray  # (d,) how far one reaches, in widths of the box
    gaussian: bool = False  # the bumps' shape, as runs of version 1 have it

    def predict(self, U: FloatArray) -> FloatArray:
        """Add up the bumps at every row of U (k, d)."""
        far = distances(U / self.lengths, self.points / self.lengths)
        bumps = np.exp(-(far**2) / 2) if self.gaussian else matern(far)
        return np.asarray(bumps @ self.weights)


def residual_of_version_1(
    points: FloatArray, left: FloatArray, scale: float, theta: FloatArray
) -> Residual:
    """Rebuild a process of one length for all coefficients.

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
