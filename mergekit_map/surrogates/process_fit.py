"""Fit the hyperparameters of a Gaussian process, and draw them from their posterior."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import qmc

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import Posterior, Process
from mergekit_map.surrogates.kernel import (
    HEIGHT,
    LENGTHS,
    NOISE,
    Covariance,
    Rows,
    lower_root,
    solve_by_root,
)
from mergekit_map.surrogates.minimize import find_minimum

N_DRAWS = 32


# Theta as we expect it, and how vaguely: linear terms, squares, products, noise, noise
# of slopes, height of the process; its lengths. Noise is in units of what was measured.
_BELIEF = np.log([1.0, 2.0, 1.5, 0.5, 0.1, 0.5])


_VAGUENESS = np.array([1.5, 1.5, 1.5, 1.0, 1.5, 1.0])


_LENGTH, _VAGUE_LENGTH = -1.0, 0.6


_UNKNOWN_NOISE, _VAGUE_NOISE = np.log(0.01), 2.0  # where none was measured


_LEAST, _MOST = -12.0, 6.0  # of theta, and of its lengths


_SHORTEST, _LONGEST = -2.5, 2.5


_HEAVIEST = 4.0  # a draw weighs at most as much as so many


# How much standard errors are widened for few merges, and how many merges it takes
# until what leaving out shows counts as much as theory; by how much at most.
_FEW, _ENOUGH, _AT_LEAST, _AT_MOST = 3.0, 30.0, 0.2, 2.0


def fit_process(
    rows: Rows, z: FloatArray, *, known_noise: bool, start: FloatArray | None = None
) -> Process:
    """Fit theta to the rows, from several starts or from the one given.

    Args:
        rows: What was measured where, with noise in units of the values.
        z: (r,) values and slopes behind the link, at least one.
        known_noise: Whether the noise of the rows was measured, or is a mere unit.
        start: Theta of a like process.
    """
    n = len(rows.U)
    offset, scale = float(z[:n].mean()), float(z[:n].std())
    scale = scale if scale > 1e-12 * np.abs(z[:n]).max() else 1.0
    z = (z - np.where(np.arange(len(z)) < n, offset, 0.0)) / scale
    noise = np.where(np.arange(len(z)) < n, rows.noise / scale**2, 1.0)
    rows = replace(rows, noise=noise, sampling=rows.sampling / scale**2)
    belief = _Belief(rows, z, *_beliefs(rows, known=known_noise))
    theta = belief.climb(belief.starts() if start is None else [start])
    return Process(
        rows, z, offset, scale, theta, theta[None], np.ones(1), 1.0, np.zeros(1)
    )


def averaged(process: Process, *, known_noise: bool) -> Process:
    """Draw further thetas around the most probable one of a process."""
    rows, z = process.rows, process.z
    belief = _Belief(rows, z, *_beliefs(rows, known=known_noise))
    draws, weights, posteriors = belief.draw(process.theta)
    return replace(
        process,
        draws=draws,
        weights=weights,
        widening=_widening(posteriors, weights, z),
        rough=_rough(rows, draws, known=known_noise),
        posteriors=posteriors,
    )


def _beliefs(rows: Rows, *, known: bool) -> tuple[FloatArray, FloatArray]:
    d = rows.U.shape[1]
    belief = np.concatenate([_BELIEF, np.full(d, _LENGTH + np.log(d) / 2)])
    vagueness = np.concatenate([_VAGUENESS, np.full(d, _VAGUE_LENGTH)])
    if not known:
        belief[NOISE], vagueness[NOISE] = _UNKNOWN_NOISE, _VAGUE_NOISE
    return belief, vagueness


@dataclass(frozen=True, eq=False)
class _Belief:
    """The posterior density of theta, given the rows."""

    rows: Rows
    z: FloatArray
    belief: FloatArray
    vagueness: FloatArray

    def starts(self) -> list[FloatArray]:
        """Return two starts: the prior mean, and one with more noise, less process."""
        quiet = self.belief.copy()
        quiet[[NOISE, HEIGHT]] += 0.75 * self.vagueness[NOISE], -1.5
        return [self.belief, quiet]

    def surprise(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log posterior, up to a constant, and its gradient."""
        r, covariance = len(self.z), Covariance(self.rows, theta)
        try:
            root = lower_root(covariance.whole)
        except np.linalg.LinAlgError:
            return 1e12, np.zeros_like(theta)
        pull = solve_by_root(root, self.z)
        away = (theta - self.belief) / self.vagueness
        value = self.z @ pull / 2 + np.log(root.diagonal()).sum() + away @ away / 2
        outer = solve_by_root(root, np.eye(r)) - np.outer(pull, pull)
        slopes = covariance.slopes(outer) / 2 + away / self.vagueness
        return float(value), slopes

    def climb(self, starts: list[FloatArray]) -> FloatArray:
        """Find the most probable theta from the starts."""
        ends = _ends(len(self.belief))
        found = [find_minimum(self.surprise, start, ends) for start in starts]
        return np.asarray(min(found, key=lambda result: result.fun).x)

    def draw(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, list[Posterior]]:
        """Draw thetas around the most probable one, with weights and posteriors."""
        width, axes = np.linalg.eigh(self._curvature(theta))
        # An axis has two directions: the same one in whatever order coefficients are.
        axes = axes * np.where(axes.sum(axis=0) < 0, -1.0, 1.0)
        width = np.maximum(width, 0.25 / self.vagueness.max() ** 2)
        steps = _normal_steps(len(theta))
        draws = theta + (steps / np.sqrt(width)) @ axes.T
        draws = np.clip(draws, *np.array(_ends(len(theta))).T)
        posteriors = [Posterior(self.rows, self.z, draw) for draw in draws]
        logs = -np.array([posterior.surprise for posterior in posteriors])
        logs -= (((draws - self.belief) / self.vagueness) ** 2).sum(axis=1) / 2
        logs += (steps**2).sum(axis=1) / 2
        weights = np.exp(np.maximum(logs - logs.max(), -30.0))
        weights = np.minimum(weights / weights.sum(), _HEAVIEST / N_DRAWS)
        weights /= weights.sum()
        return draws, weights, posteriors

    def _curvature(self, theta: FloatArray, step: float = 1e-3) -> FloatArray:
        steps = step * np.eye(len(theta))
        slopes = [
            self.surprise(theta + s)[1] - self.surprise(theta - s)[1] for s in steps
        ]
        matrix = np.array(slopes) / (2 * step)
        return np.asarray(matrix + matrix.T) / 2


@cache
def _normal_steps(size: int) -> FloatArray:
    """Draw quasi-random normal numbers of variance 1; (N_DRAWS, size)."""
    normal = qmc.MultivariateNormalQMC(np.zeros(size), seed=0)
    return np.asarray(normal.random(N_DRAWS))


def _ends(size: int) -> list[tuple[float, float]]:
    lengths = [(_SHORTEST, _LONGEST)] * (size - LENGTHS)
    return [(_LEAST, _MOST)] * LENGTHS + lengths


def _widening(posteriors: list[Posterior], weights: FloatArray, z: FloatArray) -> float:
    """Return the factor that widens the errors, for few merges and large LOO errors.

    Merges close to others inform little about the box and have small expected errors;
    each counts by its expected error.
    """
    parts = [posterior.left_out() for posterior in posteriors]
    means, variances = (np.array(part) for part in zip(*parts, strict=True))
    n = means.shape[1]
    mean = weights @ means
    spread = weights @ (variances + (means - mean) ** 2)
    seen = ((z[:n] - mean) ** 2).sum() / spread.sum()
    learnt = (_ENOUGH + n * np.clip(seen, _AT_LEAST, _AT_MOST)) / (_ENOUGH + n)
    return float(np.sqrt((1 + _FEW / n) * learnt))


def _rough(rows: Rows, draws: FloatArray, *, known: bool) -> FloatArray:
    """Estimate the part of the noise that is signal, a standard deviation per draw.

    Merges measured on the same items scatter by less than their standard errors: the
    smaller the scatter, the more of the remainder is the metric itself. A scatter above
    the noise is an error of the model. Where the noise is unknown, all of the scatter
    counts, as a second measurement would have the same result.
    """
    measured = np.sqrt(rows.noise[: len(rows.U)].mean())
    share = np.exp(draws[:, NOISE])
    if not known:
        return np.asarray(measured * share)
    other = 1 - np.minimum(share, 1 / share) ** 2
    return np.asarray(measured * share * other)
