"""A metric as a quadratic plus a Gaussian process, for predictions and their errors.

Beyond the paper. Behind the link a metric is a quadratic, whose terms have normal
priors, plus a Matérn-5/2 process, plus noise; ``kernel`` has the covariance. The
hyperparameters, theta, are the sizes of these parts. A few merges determine them only
roughly. The most probable theta is the maximum a posteriori of type II under vague
priors; others are drawn around it by Laplace's approximation with importance weights.
The mean is that of the most probable theta; standard errors are averaged over the draws
(Rasmussen and Williams 2006, chapters 2, 3.4 and 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.kernel import (
    HEIGHT,
    LENGTHS,
    Covariance,
    Rows,
    covariance_to,
    lower_root,
    noise_variances,
    solve_by_root,
    solve_root,
    term_widths,
    variance,
)
from mergekit_map.surrogates.quadratic import quadratic_features


@dataclass(frozen=True, eq=False)
class Process:
    """The posterior of a metric given the rows; the same data give the same process."""

    rows: Rows
    z: FloatArray  # (r,) what was seen, in units of ``scale``; values from ``offset``
    offset: float
    scale: float
    theta: FloatArray  # (6 + d,) the most probable
    draws: FloatArray  # (k, 6 + d) probable ones
    weights: FloatArray  # (k,) of sum 1
    widening: float  # of all standard deviations
    rough: FloatArray  # (k,) how far the metric is off what is smooth, anywhere
    posteriors: Sequence[Posterior] = ()  # of the draws, where they are made already

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation at U (k, d), a row per draw.

        Behind the link, without the noise of a new measurement.
        """
        features = quadratic_features(U)
        found = [posterior.at(U, features) for posterior in self._posteriors]
        mean, deviation = (np.array(part) for part in zip(*found, strict=True))
        deviation = self.scale * np.hypot(deviation, self.rough[:, None])
        return self.offset + self.scale * mean, self.widening * deviation

    @cached_property
    def _posteriors(self) -> Sequence[Posterior]:
        made = self.posteriors
        return made or [Posterior(self.rows, self.z, draw) for draw in self.draws]

    def best_terms(self) -> FloatArray:
        """Return the most probable terms of the quadratic; (t,)."""
        widths = term_widths(self.rows.U.shape[1], self.theta)
        pulled: FloatArray = self.rows.features.T @ self._best.pull
        terms = self.scale * widths**2 * pulled
        terms[0] += self.offset
        return terms

    def best_weights(self) -> FloatArray:
        """Return the kernel weight of each merge in the most probable process; (n,)."""
        height = np.exp(2 * self.theta[HEIGHT])
        return np.asarray(self.scale * height * self._best.pull[: len(self.rows.U)])

    @cached_property
    def _best(self) -> Posterior:
        return Posterior(self.rows, self.z, self.theta)

    @property
    def lengths(self) -> FloatArray:
        """Return the most probable length scales, in widths of the box; (d,)."""
        return np.asarray(np.exp(self.theta[LENGTHS:]))

    def best_at_points(self) -> FloatArray:
        """Return the most probable mean at the merges; (n,)."""
        mean = covariance_to(self.rows, self.theta, self.rows.U) @ self._best.pull
        return np.asarray(self.offset + self.scale * mean)

    def noise(self) -> FloatArray:
        """Return the most probable noise at the merges, a standard deviation; (n,)."""
        found = noise_variances(self.rows, self.theta)[: len(self.rows.U)]
        return np.asarray(self.scale * np.sqrt(found))

    def left_out(self) -> FloatArray:
        """Predict each merge from the others, with theta as it is; (n,)."""
        mean, _ = self._best.left_out()
        return self.offset + self.scale * mean


class Posterior:
    """The posterior for one theta."""

    def __init__(self, rows: Rows, z: FloatArray, theta: FloatArray):
        self._rows, self._z, self._theta = rows, z, theta
        self._root = _root(Covariance(rows, theta).whole)
        self.pull: FloatArray = solve_by_root(self._root, z)

    @property
    def surprise(self) -> float:
        """Return the negative log likelihood of the rows, up to a constant."""
        spread = np.log(self._root.diagonal()).sum()
        return float(self._z @ self.pull / 2 + spread)

    def at(
        self, U: FloatArray, features: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean and standard deviation at U (k, d), with its features (k, t)."""
        features = quadratic_features(U) if features is None else features
        across = covariance_to(self._rows, self._theta, U, features)
        known = solve_root(self._root, across.T)
        left = variance(self._theta, features) - (known**2).sum(axis=0)
        return across @ self.pull, np.sqrt(np.maximum(left, 0))

    def left_out(self) -> tuple[FloatArray, FloatArray]:
        """Predict each merge from the others: mean and variance with noise; (n,)."""
        n = len(self._rows.U)
        inverse = solve_by_root(self._root, np.eye(len(self._z)))
        spread = 1 / inverse.diagonal()[:n]
        off = self.pull[:n] * spread
        for merge in self._rows.sloped:
            block = self._rows.block(merge)
            rest = np.linalg.inv(inverse[np.ix_(block, block)])
            off[merge], spread[merge] = rest[0] @ self.pull[block], rest[0, 0]
        return self._z[:n] - off, spread


def _root(matrix: FloatArray) -> FloatArray:
    """Return the Cholesky factor of a covariance, with jitter where it needs some."""
    lift = 0.0
    while True:
        try:
            return lower_root(matrix + lift * np.eye(len(matrix)))
        except np.linalg.LinAlgError:
            lift = max(10 * lift, 1e-12 * float(np.abs(matrix).max()))
