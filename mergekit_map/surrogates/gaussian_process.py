"""A metric as a quadratic plus a Gaussian process, for predictions and their errors.

Beyond the paper. The *latent* metric is what the link maps to the metric: a quadratic,
whose terms have normal priors, plus a Gaussian process with a Matérn-5/2 kernel, plus
noise; ``kernel`` has the covariance. The hyperparameters, theta, are the sizes of these
parts. A few merges determine them only roughly. The most probable theta is the maximum
a posteriori of type II under vague priors; others are drawn around it by Laplace's
approximation with importance weights. The mean is that of the most probable theta;
standard errors are averaged over the draws (Rasmussen and Williams 2006, chapters 2,
3.4 and 5).

Notation: ``n`` merges, ``d`` coefficients, ``U`` (., d) coefficients scaled to [-1/2,
1/2], ``z`` (n,) standardised latent values, ``s`` draws of theta.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import ndtri

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.kernel import (
    AMPLITUDE,
    LENGTH_SCALES,
    NOISE,
    Covariance,
    Rows,
    covariance_to,
    distances,
    matern,
    term_widths,
    variance,
)
from mergekit_map.surrogates.links import Link
from mergekit_map.surrogates.quadratic import quadratic_features

N_DRAWS = 32
# Normal prior of theta, logarithms of: linear terms, squares, products, noise, the
# process; its lengths. Noise is in units of what was measured.
_PRIOR_MEAN = np.log([1.0, 2.0, 1.5, 0.5, 0.5])
_PRIOR_STDDEV = np.array([1.5, 1.5, 1.5, 1.0, 1.0])
_LENGTH_MEAN, _LENGTH_STDDEV = -1.0, 0.6
_NOISE_MEAN, _NOISE_STDDEV = np.log(0.01), 2.0  # where none was measured
_LEAST, _MOST = -12.0, 6.0  # of theta, and of its lengths
_SHORTEST, _LONGEST = -2.5, 2.5
_HEAVIEST = 4.0  # a draw weighs at most as much as so many
# How much standard errors are widened for few merges, and how many merges it takes
# until what leaving out shows counts as much as theory; by how much at most.
_FEW, _ENOUGH, _AT_LEAST, _AT_MOST = 3.0, 30.0, 0.2, 2.0
# Equally likely places of a normal distribution of variance 1.
_NODES = ndtri((np.arange(16) + 0.5) / 16)
_NODES = _NODES / np.sqrt((_NODES**2).mean())
_AT_ONCE = 1 << 13  # places, each of which is thousands of numbers


@dataclass(frozen=True, eq=False)
class Process:
    """The posterior of the latent metric for each of several draws of theta.

    The metric is a quadratic plus a Matérn process plus noise (``kernel``), each with
    normal priors. Whoever predicts averages over the draws by their weights. The same
    data give the same process.
    """

    rows: Rows  # the training data, noise in units of ``scale``
    z: FloatArray  # (n,) latent values: minus ``offset``, divided by ``scale``
    offset: float
    scale: float
    theta: FloatArray  # (5 + d,) the most probable, as ordered in ``kernel``
    draws: FloatArray  # (s, 5 + d)
    weights: FloatArray  # (s,) importance weights, of sum 1
    inflation: float  # factor on all standard deviations
    discrepancy: FloatArray  # (s,) standard deviation of the metric from this model

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latent mean and standard deviation at U (m, d): (s, m) each.

        They are without the noise of a new measurement.
        """
        features = quadratic_features(U)
        found = [posterior.predict(U, features) for posterior in self._posteriors]
        mean, deviation = (np.array(part) for part in zip(*found, strict=True))
        deviation = self.scale * np.hypot(deviation, self.discrepancy[:, None])
        return self.offset + self.scale * mean, self.inflation * deviation

    @cached_property
    def _posteriors(self) -> list[Posterior]:
        return [Posterior(self.rows, self.z, draw) for draw in self.draws]

    @cached_property
    def terms(self) -> FloatArray:
        """Return the most probable terms of the quadratic; (t,)."""
        widths = term_widths(self.rows.U.shape[1], self.theta)
        terms = self.scale * widths**2 * (self.rows.features.T @ self._best.alpha)
        terms[0] += self.offset
        return terms

    @cached_property
    def _best(self) -> Posterior:
        return Posterior(self.rows, self.z, self.theta)

    def mean(self, U: FloatArray) -> FloatArray:
        """Return the latent mean at U (m, d) for the most probable theta; (m,)."""
        lengths = np.exp(self.theta[LENGTH_SCALES:])
        amplitude = np.exp(2 * self.theta[AMPLITUDE])
        correlation = matern(distances(U / lengths, self.rows.U / lengths))
        process = correlation @ (self.scale * amplitude * self._best.alpha)
        return np.asarray(quadratic_features(U) @ self.terms + process)

    def left_out(self) -> FloatArray:
        """Predict each merge from the others, with theta as it is; (n,)."""
        mean, _ = self._best.left_out()
        return self.offset + self.scale * mean


class Posterior:
    """The posterior for one theta (Rasmussen and Williams, algorithm 2.1).

    Notation: ``K`` (n, n) covariance of the training data, ``L`` its Cholesky factor,
    ``k`` (m, n) covariance of new merges with the training data, alpha = K^-1 z.
    """

    def __init__(self, rows: Rows, z: FloatArray, theta: FloatArray):
        self._rows, self._z, self._theta = rows, z, theta
        self._L = _cholesky_with_jitter(Covariance(rows, theta).whole)
        self.alpha: FloatArray = cho_solve((self._L, True), z)

    @property
    def negative_log_likelihood(self) -> float:
        """Return z' alpha / 2 + log det K / 2: up to a constant."""
        half_log_det = np.log(self._L.diagonal()).sum()
        return float(self._z @ self.alpha / 2 + half_log_det)

    def predict(
        self, U: FloatArray, features: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return mean k alpha and standard deviation at U (m, d); (m,) each.

        ``features`` (m, t) are those of the quadratic, if they are known.
        """
        features = quadratic_features(U) if features is None else features
        k = covariance_to(self._rows, self._theta, U, features)
        half = solve_triangular(self._L, k.T, lower=True, check_finite=False)
        explained = (half**2).sum(axis=0)  # k' K^-1 k
        unexplained = variance(self._theta, features) - explained
        return k @ self.alpha, np.sqrt(np.maximum(unexplained, 0))

    def left_out(self) -> tuple[FloatArray, FloatArray]:
        """Predict each merge from the others: mean and variance with noise; (n,).

        Of merge i they are z_i - alpha_i / K^-1_ii and 1 / K^-1_ii (equation 5.12).
        """
        K_inverse = cho_solve((self._L, True), np.eye(len(self._z)))
        variances = 1 / K_inverse.diagonal()
        return self._z - self.alpha * variances, variances


def _cholesky_with_jitter(K: FloatArray) -> FloatArray:
    """Return the Cholesky factor of a covariance, with as little jitter as it needs."""
    jitter, size = 0.0, float(np.abs(K).max())
    while jitter <= size and 0 < size < np.inf:
        with suppress(LinAlgError):
            return np.asarray(cholesky(K + jitter * np.eye(len(K)), lower=True))
        jitter = max(10 * jitter, 1e-12 * size)
    raise DesignError("the measurements are too large or too small to be fitted")


def fit_process(
    rows: Rows,
    z: FloatArray,
    *,
    known_noise: bool,
    start: FloatArray | None = None,
    quadratic: bool = False,
) -> Process:
    """Fit theta to the rows, from several starts or from the one given.

    Args:
        rows: What was measured where, with noise in units of the values.
        z: (n,) latent values, at least one.
        known_noise: Whether the noise of the rows was measured, or is a mere unit.
        start: Theta of a like process.
        quadratic: Whether to do without the kernel: a quadratic with normal priors.
    """
    offset, scale = float(z.mean()), float(z.std())
    scale = scale if scale > 1e-12 * np.abs(z).max() else 1.0
    z = (z - offset) / scale
    square = scale**2
    rows = replace(rows, noise=rows.noise / square, sampling=rows.sampling / square)
    ends = _ends(LENGTH_SCALES + rows.U.shape[1])
    if quadratic:
        ends[AMPLITUDE] = (_LEAST, _LEAST)
    theta = _hyperposterior(rows, z, known=known_noise).maximise(start, ends)
    return Process(
        rows=rows,
        z=z,
        offset=offset,
        scale=scale,
        theta=theta,
        draws=theta[None],
        weights=np.ones(1),
        inflation=1.0,
        discrepancy=np.zeros(1),
    )


def averaged(process: Process, *, known_noise: bool) -> Process:
    """Draw further thetas around the most probable one of a process."""
    rows, z = process.rows, process.z
    hyperposterior = _hyperposterior(rows, z, known=known_noise)
    draws, weights, posteriors = hyperposterior.draw(process.theta)
    return replace(
        process,
        draws=draws,
        weights=weights,
        inflation=_inflation(posteriors, weights, z),
        discrepancy=_discrepancy(rows, draws, known=known_noise),
    )


def _hyperposterior(rows: Rows, z: FloatArray, *, known: bool) -> _Hyperposterior:
    d = rows.U.shape[1]
    mean = np.concatenate([_PRIOR_MEAN, np.full(d, _LENGTH_MEAN + np.log(d) / 2)])
    stddev = np.concatenate([_PRIOR_STDDEV, np.full(d, _LENGTH_STDDEV)])
    if not known:
        mean[NOISE], stddev[NOISE] = _NOISE_MEAN, _NOISE_STDDEV
    return _Hyperposterior(rows, z, mean, stddev)


@dataclass(frozen=True, eq=False)
class _Hyperposterior:
    """The posterior density of theta, given the rows."""

    rows: Rows
    z: FloatArray
    prior_mean: FloatArray  # (5 + d,) of theta
    prior_stddev: FloatArray

    def _loss(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log posterior, up to a constant, and its gradient."""
        covariance = Covariance(self.rows, theta)
        try:
            L = cholesky(covariance.whole, lower=True, check_finite=False)
        except LinAlgError:
            return 1e12, np.zeros_like(theta)
        alpha = cho_solve((L, True), self.z)
        away = (theta - self.prior_mean) / self.prior_stddev
        value = self.z @ alpha / 2 + np.log(L.diagonal()).sum() + away @ away / 2
        outer = cho_solve((L, True), np.eye(len(alpha))) - np.outer(alpha, alpha)
        gradient = covariance.gradient(outer) / 2 + away / self.prior_stddev
        return float(value), gradient

    def maximise(
        self, start: FloatArray | None, ends: list[tuple[float, float]]
    ) -> FloatArray:
        """Find the most probable theta between ends, from a start.

        Without one from two: the prior mean, and one with more noise, less process.
        """
        from scipy.optimize import minimize  # not to predict

        quiet = self.prior_mean.copy()
        quiet[[NOISE, AMPLITUDE]] += 0.75 * self.prior_stddev[NOISE], -1.5
        starts = [self.prior_mean, quiet] if start is None else [start]
        found = [
            minimize(self._loss, start, jac=True, method="L-BFGS-B", bounds=ends)
            for start in starts
        ]
        return np.asarray(min(found, key=lambda result: result.fun).x)

    def draw(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, list[Posterior]]:
        """Draw thetas around the most probable one, with weights and posteriors."""
        width, axes = np.linalg.eigh(self._curvature(theta))
        # An axis has two directions: the same one in whatever order coefficients are.
        axes = axes * np.where(axes.sum(axis=0) < 0, -1.0, 1.0)
        width = np.maximum(width, 0.25 / self.prior_stddev.max() ** 2)
        steps = _normal_steps(len(theta))
        draws = theta + (steps / np.sqrt(width)) @ axes.T
        draws = np.clip(draws, *np.array(_ends(len(theta))).T)
        posteriors = [Posterior(self.rows, self.z, draw) for draw in draws]
        logs = -np.array([one.negative_log_likelihood for one in posteriors])
        logs -= (((draws - self.prior_mean) / self.prior_stddev) ** 2).sum(axis=1) / 2
        logs += (steps**2).sum(axis=1) / 2
        weights = np.exp(np.maximum(logs - logs.max(), -30.0))
        weights = np.minimum(weights / weights.sum(), _HEAVIEST / N_DRAWS)
        weights /= weights.sum()
        return draws, weights, posteriors

    def _curvature(self, theta: FloatArray, step: float = 1e-3) -> FloatArray:
        steps = step * np.eye(len(theta))
        ends = [self._loss(theta + s)[1] - self._loss(theta - s)[1] for s in steps]
        matrix = np.array(ends) / (2 * step)
        return np.asarray(matrix + matrix.T) / 2


@cache
def _normal_steps(size: int) -> FloatArray:
    """Spread normal numbers of variance 1 evenly; (N_DRAWS, size).

    Multiples of powers of the root of x^(size + 1) = x + 1, modulo 1 (Roberts, "The
    unreasonable effectiveness of quasirandom sequences", 2018).
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (size + 1))
    steps = np.outer(np.arange(1, N_DRAWS + 1), root ** -np.arange(1.0, size + 1))
    return np.asarray(ndtri((0.5 + steps) % 1))


def _ends(size: int) -> list[tuple[float, float]]:
    lengths = [(_SHORTEST, _LONGEST)] * (size - LENGTH_SCALES)
    return [(_LEAST, _MOST)] * LENGTH_SCALES + lengths


def _inflation(
    posteriors: list[Posterior], weights: FloatArray, z: FloatArray
) -> float:
    """Return the factor that widens the errors, for few merges and large LOO errors.

    Merges close to others inform little about the box and have small expected errors;
    each counts by its expected error.
    """
    parts = [posterior.left_out() for posterior in posteriors]
    means, variances = (np.array(part) for part in zip(*parts, strict=True))
    mean = weights @ means
    spread = weights @ (variances + (means - mean) ** 2)
    seen = ((z - mean) ** 2).sum() / spread.sum()
    n = len(z)
    learnt = (_ENOUGH + n * np.clip(seen, _AT_LEAST, _AT_MOST)) / (_ENOUGH + n)
    return float(np.sqrt((1 + _FEW / n) * learnt))


def _discrepancy(rows: Rows, draws: FloatArray, *, known: bool) -> FloatArray:
    """Estimate the part of the noise that is signal, a standard deviation per draw.

    Merges measured on the same items scatter by less than their standard errors: the
    smaller the scatter, the more of the remainder is the metric itself. A scatter above
    the noise is an error of the model. Where the noise is unknown, all of the scatter
    counts, as a second measurement would have the same result.
    """
    measured = np.sqrt(rows.noise.mean())
    share = np.exp(draws[:, NOISE])
    if not known:
        return np.asarray(measured * share)
    other = 1 - np.minimum(share, 1 / share) ** 2
    return np.asarray(measured * share * other)


def prediction_stderr(
    process: Process, link: Link, U: FloatArray, s: FloatArray
) -> FloatArray:
    """Return the standard error of predictions at U (k, d), in metric units; (k,).

    It is the root mean square error, over the draws of the process, of the predictions
    latent ``s`` (k,), which may be those of a quadratic.
    """
    parts = []
    for start in range(0, max(len(U), 1), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        mean, deviation = process.predict(U[part])
        drawn = link.apply(mean + _NODES[:, None, None] * deviation)
        off = drawn - link.apply(s[part])
        parts.append(np.sqrt(process.weights @ (off**2).mean(axis=0)))
    return np.concatenate(parts)
