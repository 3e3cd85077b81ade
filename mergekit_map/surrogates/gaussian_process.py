"""A metric as a quadratic plus a Gaussian process, for predictions and their errors.

Beyond the paper. The *latent* metric is what the link maps to the metric: a quadratic,
whose terms have normal priors, plus a Gaussian process with a Matérn-5/2 kernel, both
of coefficients whose effect saturates, plus noise. The hyperparameters of their
covariance, theta, have vague priors. The mean is that of their *mode*, the maximum a
posteriori; standard errors are averaged over draws around it, by Laplace's
approximation with importance weights (Rasmussen and Williams 2006, chapters 2, 3.4 and
5).

Notation: ``n`` merges, ``d`` coefficients, ``U`` (., d) coefficients scaled to [-1/2,
1/2] by the bounds of the search, ``W`` (., d) their saturating effect; ``t`` terms of
the quadratic; ``z`` (n,) standardized latent values, ``s`` draws of theta.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import ndtri

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import (
    Link,
    directional_derivative,
    quadratic_features,
)

_INTERCEPT_STDDEV = 10.0  # as good as free
_JITTER = 1e-10
_SQRT5 = math.sqrt(5)
# Correlation between the errors that a choice of documents, the same for all, makes of
# any two merges: in between of errors of their own and one that all have in common.
_SAMPLING_CORRELATION = 0.5
_N_DRAWS = 32
_MIN_LOG, _MAX_LOG = -12.0, 6.0  # of standard deviations
_MIN_LOG_LENGTH, _MAX_LOG_LENGTH = -2.5, 2.5
_MAX_LOG_SATURATION = 1.5  # half of an effect within the first sixth of the box
# The second start has noise and saturation larger by so many prior deviations, and
# less process.
_NOISY_START, _SATURATED_START, _QUIET_START = 0.75, 2.0, -1.5
_MAX_WEIGHT = 4.0  # of a draw, in means of all weights
# How much standard errors are widened for few merges; how many merges it takes until
# leave-one-out errors count as much as theory, and the range of their ratio.
_SMALL_SAMPLE, _PRIOR_MERGES, _RATIO_RANGE = 3.0, 30.0, (0.2, 2.0)
# Equally likely quantiles of a normal distribution, scaled to the variance 1.
_QUANTILES = ndtri((np.arange(16) + 0.5) / 16)
_QUANTILES = _QUANTILES / np.sqrt((_QUANTILES**2).mean())
_BATCH_SIZE = 1 << 13  # merges, each of which takes thousands of numbers


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The hyperparameters of the covariance, as logarithms.

    An optimizer varies them as one vector (6 + d,) in this order.
    """

    log_term_stddevs: FloatArray  # (3,) priors of linear terms, squares, products
    log_noise: float  # factor on the standard deviations of ``TrainingData``
    log_amplitude: float  # standard deviation of the process
    log_saturation: float  # of the effects of coefficients, per width of the box
    log_length_scales: FloatArray  # (d,) of its kernel, in widths of the box

    @classmethod
    def from_vector(cls, vector: FloatArray) -> Hyperparameters:
        """Build from the vector that an optimizer varies."""
        return cls(vector[:3], vector[3], vector[4], vector[5], vector[6:])

    @property
    def vector(self) -> FloatArray:
        """Return the vector that an optimizer varies; (6 + d,)."""
        scalars = [self.log_noise, self.log_amplitude, self.log_saturation]
        return np.concatenate([self.log_term_stddevs, scalars, self.log_length_scales])

    @property
    def signal_variance(self) -> float:
        """Return the variance of the process."""
        return math.exp(2 * self.log_amplitude)

    @property
    def term_stddevs(self) -> FloatArray:
        """Return the prior standard deviation of every term of the quadratic; (t,)."""
        kinds = _kinds_of_terms(len(self.log_length_scales))
        stddevs = np.exp(self.log_term_stddevs[kinds])
        return np.where(kinds < 0, _INTERCEPT_STDDEV, stddevs)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The measured merges and their noise."""

    U: FloatArray  # (n, d)
    noise_variance: FloatArray  # (n,), which a hyperparameter scales
    # (n,), or (1,) for all: variance of a choice of documents, which none scales.
    sampling_variance: FloatArray = field(default_factory=lambda: np.zeros(1))
    known_noise: bool = True  # measured; otherwise ``noise_variance`` is a mere unit


def _saturating(U: FloatArray, log_saturation: float) -> FloatArray:
    """Return an effect of coefficients U that saturates; (k, d).

    Most of what a weight does to SmolLM2 it does while it is small
    (docs/results/smollm2.md). The effect is (1 - exp(-a u)) / (1 - exp(-a)) - 1/2,
    where ``a`` is the saturation and u = U + 1/2, from 0 to 1 in the box. Below the box
    it goes on as a straight line.
    """
    a = math.exp(log_saturation)
    u = np.maximum(U + 0.5, 0)
    below = a * np.minimum(U + 0.5, 0)
    return np.asarray((below - np.expm1(-a * u)) / -math.expm1(-a) - 0.5)


def _saturating_slope(U: FloatArray, log_saturation: float) -> FloatArray:
    """Return the derivative of the effect by the logarithm, in the box; (k, d)."""
    a, u = math.exp(log_saturation), U + 0.5
    whole = math.expm1(-a)
    rest = math.exp(-a) * np.expm1(-a * u) / whole
    return np.asarray(a * (rest - u * np.exp(-a * u)) / whole)


@cache
def _kinds_of_terms(d: int) -> IntArray:
    """Return the kinds of terms: constant -1, linear 0, square 1, product 2; (t,)."""
    rows, columns = np.triu_indices(d)
    second_order = np.where(rows == columns, 1, 2)
    return np.concatenate([[-1], np.zeros(d, dtype=np.int_), second_order])


def _distances(V: FloatArray, W: FloatArray) -> FloatArray:
    """Return the Euclidean distances of the rows of V (k, d) to those of W; (k, n)."""
    squares: FloatArray = (V**2).sum(axis=1)[:, None] + (W**2).sum(axis=1)
    squares -= 2 * V @ W.T
    np.maximum(squares, 0, out=squares)
    return np.sqrt(squares, out=squares)


def _matern(distance: FloatArray) -> FloatArray:
    """Return the Matérn-5/2 kernel of variance 1 at distances in length scales."""
    # (1 + r + r**2 / 3) * exp(-r), in as little memory: it is called most of all.
    r: FloatArray = _SQRT5 * distance
    square, correlation = r**2, 1 + r
    square /= 3
    correlation += square
    np.negative(r, out=r)
    correlation *= np.exp(r, out=r)
    return correlation


class Covariance:
    """The covariance of the training data with noise, and its derivatives by theta."""

    def __init__(self, data: TrainingData, theta: Hyperparameters):
        self._data, self._theta = data, theta
        self.W = _saturating(data.U, theta.log_saturation)  # (n, d)
        self.features = quadratic_features(self.W)
        self._scaled_features = self.features * theta.term_stddevs
        self._scaled_W = self.W / np.exp(theta.log_length_scales)
        self._distances = _distances(self._scaled_W, self._scaled_W)
        self._process = theta.signal_variance * _matern(self._distances)
        self._noise = np.exp(2 * theta.log_noise) * data.noise_variance

        self.matrix: FloatArray = self._scaled_features @ self._scaled_features.T
        self.matrix += self._process
        sampling, common = data.sampling_variance, _SAMPLING_CORRELATION
        diagonal = self.matrix.reshape(-1)[:: len(self.matrix) + 1]  # a view
        diagonal += self._noise + (1 - common) * sampling + _JITTER
        self.matrix += common * np.sqrt(np.outer(sampling, sampling))

    def cross(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the covariance of the metric at U (k, d) with the data, and features.

        The covariance is (k, n); the features (k, t) are those of the quadratic.
        """
        theta = self._theta
        W = _saturating(U, theta.log_saturation)
        features = quadratic_features(W)
        covariance: FloatArray = (features * theta.term_stddevs**2) @ self.features.T
        scaled_W = W / np.exp(theta.log_length_scales)
        correlation = _matern(_distances(scaled_W, self._scaled_W))
        return covariance + theta.signal_variance * correlation, features

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Differentiate ``(weights * matrix).sum()`` by theta; (6 + d,).

        The weights (n, n) are symmetric.
        """
        theta = self._theta
        weighted = weights @ self._scaled_features
        by_term = (weighted * self._scaled_features).sum(axis=0)
        by_kind = np.bincount(_kinds_of_terms(self.W.shape[1]) + 1, by_term, 4)[1:]
        by_noise = (weights.diagonal() * self._noise).sum()
        by_amplitude = (weights * self._process).sum()
        # Half of minus the derivative by the scaled W.
        r = _SQRT5 * self._distances
        slope = 5 / 3 * theta.signal_variance * weights * (1 + r) * np.exp(-r)
        pull = slope.sum(axis=1)[:, None] * self._scaled_W - slope @ self._scaled_W
        by_length_scales = 2 * (pull * self._scaled_W).sum(axis=0)

        moved = _saturating_slope(self._data.U, theta.log_saturation)
        of_features = directional_derivative(self.W, moved) * theta.term_stddevs
        by_saturation = (weighted * of_features).sum()
        by_saturation -= (pull * moved / np.exp(theta.log_length_scales)).sum()
        doubled = 2 * np.array([*by_kind, by_noise, by_amplitude, by_saturation])
        return np.concatenate([doubled, by_length_scales])


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """The posterior of the latent metric, for several draws of the hyperparameters.

    There is a prediction for each draw, to be averaged by ``draw_weights``. The same
    data give the same process.
    """

    data: TrainingData  # with noise in units of ``scale``
    z: FloatArray  # (n,) latent values: minus ``offset``, divided by ``scale``
    offset: float
    scale: float
    mode: Hyperparameters
    draws: list[Hyperparameters]  # s of them
    draw_weights: FloatArray  # (s,) importance weights, of sum 1
    inflation: float  # factor on all standard deviations, from leave-one-out errors
    discrepancy: FloatArray  # (s,) the part of the noise that is signal

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latent mean and standard deviation at U (k, d): (s, k) each.

        They are without the noise of a new measurement.
        """
        predictions = [one.predict(U) for one in self._draw_posteriors]
        mean, stddev = (np.array(rows) for rows in zip(*predictions, strict=True))
        stddev = self.scale * np.hypot(stddev, self.discrepancy[:, None])
        return self.offset + self.scale * mean, self.inflation * stddev

    @cached_property
    def _draw_posteriors(self) -> list[Posterior]:
        return [Posterior(self.data, self.z, draw) for draw in self.draws]

    @cached_property
    def _mode_posterior(self) -> Posterior:
        return Posterior(self.data, self.z, self.mode)

    @cached_property
    def terms(self) -> FloatArray:
        """Return the posterior mean of the terms of the effects, at the mode; (t,)."""
        prior_variances = self.mode.term_stddevs**2
        posterior = self._mode_posterior
        covariance = posterior.covariance.features.T @ posterior.alpha
        terms = self.scale * prior_variances * covariance
        terms[0] += self.offset
        return terms

    def mean(self, U: FloatArray) -> FloatArray:
        """Return the latent mean at U (k, d), at the mode; (k,)."""
        posterior = self._mode_posterior
        k, _ = posterior.covariance.cross(U)
        return self.offset + self.scale * np.asarray(k @ posterior.alpha)

    def leave_one_out(self) -> FloatArray:
        """Predict each merge from the others, at the mode; (n,)."""
        mean, _ = self._mode_posterior.leave_one_out()
        return self.offset + self.scale * mean


class Posterior:
    """The posterior for given hyperparameters (Rasmussen and Williams, algorithm 2.1).

    Notation: ``K`` (n, n) covariance of the training data, ``L`` its Cholesky factor,
    ``k`` (m, n) covariance of new merges with the training data, alpha = K^-1 z.
    """

    def __init__(self, data: TrainingData, z: FloatArray, theta: Hyperparameters):
        self._z, self._theta = z, theta
        self.covariance = Covariance(data, theta)
        self._L = _cholesky_with_jitter(self.covariance.matrix)
        self.alpha: FloatArray = cho_solve((self._L, True), z)

    @property
    def negative_log_likelihood(self) -> float:
        """Return z' alpha / 2 + log det K / 2: up to a constant."""
        half_log_det = np.log(self._L.diagonal()).sum()
        return float(self._z @ self.alpha / 2 + half_log_det)

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean k alpha and standard deviation at U (m, d); (m,) each."""
        k, features = self.covariance.cross(U)
        half = solve_triangular(self._L, k.T, lower=True, check_finite=False)
        explained = (half**2).sum(axis=0)  # k' K^-1 k
        of_terms = ((features * self._theta.term_stddevs) ** 2).sum(axis=1)
        variance = of_terms + self._theta.signal_variance - explained
        return k @ self.alpha, np.sqrt(np.maximum(variance, 0))

    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Predict each merge from the others: mean and variance with noise; (n,).

        Of merge i they are z_i - alpha_i / K^-1_ii and 1 / K^-1_ii (equation 5.12).
        """
        K_inverse = cho_solve((self._L, True), np.eye(len(self._z)))
        variances = 1 / K_inverse.diagonal()
        return self._z - self.alpha * variances, variances


def _cholesky_with_jitter(K: FloatArray) -> FloatArray:
    """Return the Cholesky factor of a covariance, with as little jitter as it needs."""
    jitter, largest = 0.0, float(np.abs(K).max())
    while jitter <= largest and 0 < largest < np.inf:
        with suppress(LinAlgError):
            return np.asarray(cholesky(K + jitter * np.eye(len(K)), lower=True))
        jitter = max(10 * jitter, 1e-12 * largest)
    raise DesignError("the measurements are too large or too small to be fitted")


def fit_gaussian_process(
    data: TrainingData,
    latent: FloatArray,
    *,
    start: Hyperparameters | None = None,
    quadratic_only: bool = False,
) -> GaussianProcess:
    """Fit the most probable hyperparameters, from several starts or the one given.

    Args:
        data: The merges, with noise in units of the values.
        latent: (n,) latent values, at least one.
        start: The mode of a similar process.
        quadratic_only: Whether to fit a quadratic with normal priors, and no kernel.
    """
    offset, scale = float(latent.mean()), float(latent.std())
    scale = scale if scale > 1e-12 * np.abs(latent).max() else 1.0
    z = (latent - offset) / scale
    square = scale**2
    noise, sampling = data.noise_variance / square, data.sampling_variance / square
    data = replace(data, noise_variance=noise, sampling_variance=sampling)
    mode = _Hyperposterior(data, z).maximize(start, quadratic_only=quadratic_only)
    return GaussianProcess(
        data=data,
        z=z,
        offset=offset,
        scale=scale,
        mode=mode,
        draws=[mode],
        draw_weights=np.ones(1),
        inflation=1.0,
        discrepancy=np.zeros(1),
    )


def marginalize(process: GaussianProcess) -> GaussianProcess:
    """Average a process over draws of hyperparameters around the mode."""
    data, z = process.data, process.z
    draws, weights, posteriors = _Hyperposterior(data, z).draw(process.mode)
    return replace(
        process,
        draws=draws,
        draw_weights=weights,
        inflation=_inflation(posteriors, weights, z),
        discrepancy=_discrepancy(data, draws),
    )


def _bounds(d: int) -> tuple[Hyperparameters, Hyperparameters]:
    """Return the smallest and largest values that are tried."""
    low, high = np.full(d, _MIN_LOG_LENGTH), np.full(d, _MAX_LOG_LENGTH)
    least, most = np.full(3, _MIN_LOG), np.full(3, _MAX_LOG)
    lower = Hyperparameters(least, _MIN_LOG, _MIN_LOG, _MIN_LOG, low)
    upper = Hyperparameters(most, _MAX_LOG, _MAX_LOG, _MAX_LOG_SATURATION, high)
    return lower, upper


@dataclass(frozen=True, eq=False)
class _Hyperposterior:
    """The posterior density of theta, given the training data and normal priors."""

    data: TrainingData
    z: FloatArray

    @cached_property
    def prior_mean(self) -> Hyperparameters:
        d = self.data.U.shape[1]
        return Hyperparameters(
            log_term_stddevs=np.log([1.0, 2.0, 1.5]),
            log_noise=np.log(0.5 if self.data.known_noise else 0.01),
            log_amplitude=np.log(0.5),
            log_saturation=np.log(0.3),
            log_length_scales=np.full(d, -1.0 + np.log(d) / 2),
        )

    @cached_property
    def prior_stddev(self) -> Hyperparameters:
        return Hyperparameters(
            log_term_stddevs=np.full(3, 1.5),
            log_noise=1.0 if self.data.known_noise else 2.0,
            log_amplitude=1.0,
            log_saturation=0.7,
            log_length_scales=np.full(self.data.U.shape[1], 0.6),
        )

    def _loss(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log posterior, up to a constant, and its gradient."""
        covariance = Covariance(self.data, Hyperparameters.from_vector(vector))
        try:
            L = cholesky(covariance.matrix, lower=True, check_finite=False)
        except LinAlgError:
            return 1e12, np.zeros_like(vector)
        alpha = cho_solve((L, True), self.z)
        prior_stddev = self.prior_stddev.vector
        deviation = (vector - self.prior_mean.vector) / prior_stddev
        half_log_det = np.log(L.diagonal()).sum()
        loss = self.z @ alpha / 2 + half_log_det + deviation @ deviation / 2
        weights = cho_solve((L, True), np.eye(len(alpha))) - np.outer(alpha, alpha)
        gradient = covariance.gradient(weights) / 2 + deviation / prior_stddev
        return float(loss), gradient

    def maximize(
        self, start: Hyperparameters | None, *, quadratic_only: bool
    ) -> Hyperparameters:
        """Find the mode from a start.

        Without one from two: the prior mean, and one with more noise, less process.
        """
        from scipy.optimize import minimize  # not to predict

        lower, upper = _bounds(self.data.U.shape[1])
        if quadratic_only:
            # Nothing but a quadratic of the coefficients themselves.
            upper = replace(upper, log_amplitude=_MIN_LOG, log_saturation=_MIN_LOG)
        prior = self.prior_mean
        stddev = self.prior_stddev
        noisy = replace(
            prior,
            log_noise=prior.log_noise + _NOISY_START * stddev.log_noise,
            log_amplitude=prior.log_amplitude + _QUIET_START,
            log_saturation=prior.log_saturation
            + _SATURATED_START * stddev.log_saturation,
        )
        bounds = list(zip(lower.vector, upper.vector, strict=True))
        results = [
            minimize(self._loss, x0.vector, jac=True, method="L-BFGS-B", bounds=bounds)
            for x0 in ([prior, noisy] if start is None else [start])
        ]
        best = min(results, key=lambda result: result.fun)
        return Hyperparameters.from_vector(np.asarray(best.x))

    def draw(
        self, mode: Hyperparameters
    ) -> tuple[list[Hyperparameters], FloatArray, list[Posterior]]:
        """Draw thetas around the mode, with importance weights and posteriors."""
        prior_stddev = self.prior_stddev.vector
        precisions, axes = np.linalg.eigh(self._hessian(mode.vector))
        # An axis has two directions: the same one in whatever order coefficients are.
        axes = axes * np.where(axes.sum(axis=0) < 0, -1.0, 1.0)
        precisions = np.maximum(precisions, 0.25 / prior_stddev.max() ** 2)
        normals = _quasi_random_normals(len(prior_stddev))
        vectors = mode.vector + (normals / np.sqrt(precisions)) @ axes.T
        lower, upper = _bounds(self.data.U.shape[1])
        vectors = np.clip(vectors, lower.vector, upper.vector)
        draws = [Hyperparameters.from_vector(vector) for vector in vectors]
        posteriors = [Posterior(self.data, self.z, draw) for draw in draws]

        log_likelihoods = [-one.negative_log_likelihood for one in posteriors]
        deviations = (vectors - self.prior_mean.vector) / prior_stddev
        log_weights = np.array(log_likelihoods) - (deviations**2).sum(axis=1) / 2
        log_weights += (normals**2).sum(axis=1) / 2  # of the density drawn from
        weights = np.exp(np.maximum(log_weights - log_weights.max(), -30.0))
        weights = np.minimum(weights / weights.sum(), _MAX_WEIGHT / _N_DRAWS)
        weights /= weights.sum()
        return draws, weights, posteriors

    def _hessian(self, vector: FloatArray, step: float = 1e-3) -> FloatArray:
        steps = step * np.eye(len(vector))
        rows = [self._loss(vector + s)[1] - self._loss(vector - s)[1] for s in steps]
        hessian = np.array(rows) / (2 * step)
        return np.asarray(hessian + hessian.T) / 2


@cache
def _quasi_random_normals(size: int) -> FloatArray:
    """Spread normal numbers of variance 1 evenly; (_N_DRAWS, size).

    Multiples of powers of the root of x^(size + 1) = x + 1, modulo 1 (Roberts, "The
    unreasonable effectiveness of quasirandom sequences", 2018).
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (size + 1))
    multiples = np.outer(np.arange(1, _N_DRAWS + 1), root ** -np.arange(1.0, size + 1))
    return np.asarray(ndtri((0.5 + multiples) % 1))


def _inflation(
    posteriors: list[Posterior], weights: FloatArray, z: FloatArray
) -> float:
    """Return the factor that widens the errors, for few merges and large LOO errors.

    Merges close to others inform little about the box and have small expected errors;
    each counts by its expected error.
    """
    predictions = [posterior.leave_one_out() for posterior in posteriors]
    means, variances = (np.array(rows) for rows in zip(*predictions, strict=True))
    mean = weights @ means
    variance = weights @ (variances + (means - mean) ** 2)  # (n,) of the mixture
    ratio = np.clip(((z - mean) ** 2).sum() / variance.sum(), *_RATIO_RANGE)
    n = len(z)
    shrunk = (_PRIOR_MERGES + n * ratio) / (_PRIOR_MERGES + n)  # towards 1
    return float(np.sqrt((1 + _SMALL_SAMPLE / n) * shrunk))


def _discrepancy(data: TrainingData, draws: list[Hyperparameters]) -> FloatArray:
    """Estimate the part of the noise that is signal, a standard deviation per draw.

    Merges measured on the same items scatter by less than their standard errors: the
    smaller the scatter, the more of the remainder is the metric itself. A scatter above
    the noise is an error of the model. Where the noise is unknown, all of the scatter
    counts, as a second measurement would have the same result.
    """
    measured_noise = np.sqrt(data.noise_variance.mean())
    ratio = np.exp([draw.log_noise for draw in draws])  # scatter / measured noise
    if not data.known_noise:
        return np.asarray(measured_noise * ratio)
    unexplained = 1 - np.minimum(ratio, 1 / ratio) ** 2
    return np.asarray(measured_noise * ratio * unexplained)


def prediction_stderr(
    process: GaussianProcess, link: Link, U: FloatArray, latent: FloatArray
) -> FloatArray:
    """Return the standard error of predictions at U (k, d), in metric units; (k,).

    It is the root mean square error, over the draws of the process, of the predictions
    ``latent`` (k,), which may be those of a quadratic.
    """
    stderrs = []
    for start in range(0, max(len(U), 1), _BATCH_SIZE):
        batch = slice(start, start + _BATCH_SIZE)
        mean, stddev = process.predict(U[batch])
        # (quantiles, draws, merges), with the mean over quantiles first
        metric = link.apply(mean + _QUANTILES[:, None, None] * stddev)
        squared_error = ((metric - link.apply(latent[batch])) ** 2).mean(axis=0)
        stderrs.append(np.sqrt(process.draw_weights @ squared_error))
    return np.concatenate(stderrs)
