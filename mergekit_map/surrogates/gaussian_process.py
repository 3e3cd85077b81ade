"""A metric as a quadratic plus a Gaussian process, for predictions and their errors.

Beyond the paper. The *latent* metric, which the link maps to the metric, is a quadratic
with normal priors of its terms, plus a Gaussian process with a Matérn-5/2 kernel, plus
noise (the formulas: ``Covariance``). Quadratic and process depend on effects of the
coefficients, which may saturate. The hyperparameters, theta, have vague priors. The
predicted mean is that of their *mode*, the maximum a posteriori. Standard errors are
averaged over draws around it, by Laplace's approximation with importance weights
(Rasmussen and Williams 2006, chapters 2, 3.4 and 5).

Notation: ``n`` measured merges, ``m`` others, ``d`` coefficients, ``U`` (., d)
coefficients scaled to [-1/2, 1/2] by the bounds of the search, ``W`` (., d) their
effects; ``t`` terms of the quadratic; ``z`` (n,) standardized latent values, ``s``
draws of theta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.special import ndtri

from mergekit_map.errors import DesignError
from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import (
    Link,
    directional_derivative,
    quadratic_features,
)

_INTERCEPT_STDDEV = 10.0  # as good as free
_JITTER = 1e-10  # always on the diagonal; ``_cholesky_with_jitter`` may add more
_SQRT5 = math.sqrt(5)
# All merges are measured on the same choice of documents. The errors that this choice
# makes of two merges are neither independent (0) nor equal (1).
_SAMPLING_CORRELATION = 0.5
# Bounds of the hyperparameters
_MIN_LOG, _MAX_LOG = -12.0, 6.0  # standard deviations
_MIN_LOG_LENGTH, _MAX_LOG_LENGTH = -2.5, 2.5  # length scales
_MAX_LOG_SATURATION = 1.5  # half of an effect within the first sixth of the box
# Standard errors
_N_DRAWS = 32  # of the hyperparameters
_MAX_WEIGHT = 4.0  # a draw counts at most as much as four of average weight
_N_QUANTILES = 16  # of a prediction, for its error after the link
_SMALL_SAMPLE = 3.0  # factor 1 + 3 / n on variances, for n merges
_MAX_RATIO = 2.0  # of squared leave-one-out errors to their expectation
_PRIOR_MERGES = 30.0  # that ratio counts by n / (n + 30), and 1 by the rest
_BATCH_SIZE = 8192  # merges predicted at once; limits the memory


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The hyperparameters of the covariance, as logarithms."""

    log_term_stddevs: FloatArray  # (3,) priors of linear terms, squares, products
    log_noise: float  # factor on the standard deviations of ``TrainingData``
    log_amplitude: float  # standard deviation of the process
    log_saturation: float  # of the effects of coefficients, per width of the box
    log_length_scales: FloatArray  # (d,) of its kernel, in widths of the box

    @classmethod
    def from_vector(cls, vector: FloatArray) -> Hyperparameters:
        """Build from what ``vector`` returns."""
        return cls(vector[:3], vector[3], vector[4], vector[5], vector[6:])

    @cached_property
    def vector(self) -> FloatArray:
        """Return all in one vector, which an optimizer varies; (6 + d,)."""
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
        return np.concatenate([[_INTERCEPT_STDDEV], stddevs])


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The measured merges and their noise."""

    U: FloatArray  # (n, d)
    noise_variance: FloatArray  # (n,), which a hyperparameter scales
    sampling_variance: FloatArray | float = 0.0  # (n,) of a choice of documents
    known_noise: bool = True  # measured; otherwise ``noise_variance`` is a mere unit

    @cached_property
    def shared_sampling(self) -> FloatArray:
        """Return the covariance of errors of sampling that all merges share; (n, n)."""
        both = np.outer(self.sampling_variance, self.sampling_variance)
        return np.asarray(_SAMPLING_CORRELATION * np.sqrt(both))


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """The posterior of the latent metric, for several draws of the hyperparameters."""

    data: TrainingData  # with noise in units of ``scale``
    z: FloatArray  # (n,) latent values: minus ``offset``, divided by ``scale``
    offset: float
    scale: float
    mode: Posterior  # for the most probable hyperparameters
    draws: list[Posterior]  # s of them, each for other hyperparameters
    # (s,) importance weights of the draws and their predictions, of sum 1
    draw_weights: FloatArray = field(default_factory=lambda: np.ones(1))
    inflation: float = 1.0  # factor on standard deviations, from leave-one-out errors
    # (s,) the part of the noise that is signal
    discrepancy: FloatArray = field(default_factory=lambda: np.zeros(1))

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latent mean and standard deviation (s, m) at U (m, d), noise-free."""
        predictions = [posterior.predict(U) for posterior in self.draws]
        mean, stddev = (np.array(rows) for rows in zip(*predictions, strict=True))
        stddev = self.scale * np.hypot(stddev, self.discrepancy[:, None])
        return self.offset + self.scale * mean, self.inflation * stddev

    @cached_property
    def terms(self) -> FloatArray:
        """Return the posterior mean of the terms of the effects, at the mode; (t,)."""
        prior_variances = self.mode.theta.term_stddevs**2
        covariance = self.mode.covariance.features.T @ self.mode.alpha
        terms = self.scale * prior_variances * covariance
        terms[0] += self.offset
        return terms

    def mean(self, U: FloatArray) -> FloatArray:
        """Return the latent mean at U (m, d), at the mode; (m,)."""
        k, _ = self.mode.covariance.cross(U)
        return self.offset + self.scale * np.asarray(k @ self.mode.alpha)

    def leave_one_out(self) -> FloatArray:
        """Predict each merge from the others, at the mode; (n,)."""
        mean, _ = self.mode.leave_one_out()
        return self.offset + self.scale * mean


def fit_gaussian_process(
    data: TrainingData,
    latent: FloatArray,
    *,
    start: Hyperparameters | None = None,
    quadratic_only: bool = False,
) -> GaussianProcess:
    """Fit the most probable hyperparameters, from several starts or the one given.

    ``latent`` (n,), n >= 1, and the noise of the data have one unit. ``start`` is the
    mode of a similar process. With ``quadratic_only`` there are priors but no kernel.
    """
    offset = float(latent.mean())
    stddev = float(latent.std())
    scale = stddev if stddev > 1e-12 * np.abs(latent).max() else 1.0  # if constant
    z = (latent - offset) / scale
    scaled_data = replace(
        data,
        noise_variance=data.noise_variance / scale**2,
        sampling_variance=data.sampling_variance / scale**2,
    )
    hyperposterior = _Hyperposterior(scaled_data, z)
    theta = hyperposterior.maximize(start, quadratic_only=quadratic_only)
    mode = Posterior(scaled_data, z, theta)
    return GaussianProcess(scaled_data, z, offset, scale, mode, draws=[mode])


def marginalize(process: GaussianProcess) -> GaussianProcess:
    """Average a process over draws of hyperparameters around the mode."""
    draws, weights = _Hyperposterior(process.data, process.z).draw(process.mode.theta)
    return replace(
        process,
        draws=draws,
        draw_weights=weights,
        inflation=_inflation(draws, weights, process.z),
        discrepancy=_discrepancy(process.data, draws),
    )


def prediction_stderr(
    process: GaussianProcess, link: Link, U: FloatArray, latent: FloatArray
) -> FloatArray:
    """Return the standard error of predictions at U (m, d), in metric units; (m,).

    It is the root mean square error, over the draws of the process, of the predictions
    ``latent`` (m,), which may be those of a quadratic.
    """
    # Equally likely quantiles of a normal distribution, scaled to the variance 1.
    quantiles = ndtri((np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES)
    quantiles /= np.sqrt((quantiles**2).mean())
    stderrs = []
    for start in range(0, max(len(U), 1), _BATCH_SIZE):  # one batch if U is empty
        batch = slice(start, start + _BATCH_SIZE)
        mean, stddev = process.predict(U[batch])
        metric = link.apply(mean + quantiles[:, None, None] * stddev)
        squared_errors = (metric - link.apply(latent[batch])) ** 2
        # (quantiles, draws, merges): the mean over quantiles, then over draws
        stderrs.append(np.sqrt(process.draw_weights @ squared_errors.mean(axis=0)))
    return np.concatenate(stderrs)


class Covariance:
    """The covariance of the training data, and its gradient.

    ``matrix`` (n, n) is the sum of the covariances

    - of the quadratic: F F', where F (n, t) is its features times ``term_stddevs``,
    - of the process: ``signal_variance`` times the kernel of the distances of the rows
      of V (n, d), the effects divided by the length scales,
    - of the noise: a diagonal matrix,
    - of the errors of sampling documents, a part of which all merges share.
    """

    def __init__(self, data: TrainingData, theta: Hyperparameters):
        self._U = data.U
        self._theta = theta
        self._W = _effect(data.U, theta.log_saturation)
        # The quadratic
        self.features = quadratic_features(self._W)
        self._stddevs = theta.term_stddevs
        self._F = self.features * self._stddevs
        quadratic: FloatArray = self._F @ self._F.T
        # The process
        self._length_scales = np.exp(theta.log_length_scales)
        self._V = self._W / self._length_scales
        self._distances = _distances(self._V, self._V)
        self._process = theta.signal_variance * _matern(self._distances)
        # The noise and the errors of sampling, which are noise of the measurements
        self._noise = np.exp(2 * theta.log_noise) * data.noise_variance
        unshared_sampling = (1 - _SAMPLING_CORRELATION) * data.sampling_variance
        independent = np.diag(self._noise + unshared_sampling + _JITTER)
        self.matrix = quadratic + self._process + independent + data.shared_sampling

    def cross(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return covariance with the data (m, n) and features (m, t) at U (m, d).

        It is that of the metric itself, without noise and errors of sampling.
        """
        W = _effect(U, self._theta.log_saturation)
        features = quadratic_features(W)
        quadratic: FloatArray = (features * self._stddevs**2) @ self.features.T
        correlation = _matern(_distances(W / self._length_scales, self._V))
        return quadratic + self._theta.signal_variance * correlation, features

    def prior_variance(self, features: FloatArray) -> FloatArray:
        """Return the prior variance of merges with these features (m, t); (m,)."""
        of_terms = ((features * self._stddevs) ** 2).sum(axis=1)
        return np.asarray(of_terms + self._theta.signal_variance)

    def gradient(self, grad_K: FloatArray) -> FloatArray:
        """Return the gradient of a loss with respect to ``theta.vector``; (6 + d,).

        ``grad_K`` (n, n), symmetric, is its gradient with respect to ``matrix``. The
        entries of theta are logarithms: exp(2 h), for example, has the derivative
        2 exp(2 h).
        """
        grad_F = 2 * (grad_K @ self._F)
        grad_V = self._grad_V(grad_K)
        # The standard deviation of the intercept, the first term, is fixed.
        grad_log_stddevs = (grad_F * self._F).sum(axis=0)[1:]
        kinds = _kinds_of_terms(self._W.shape[1])
        # The saturation changes the effects W, and by them F and V.
        dW = _effect_derivative(self._U, self._theta.log_saturation)
        dF = directional_derivative(self._W, dW) * self._stddevs
        through_F = (grad_F * dF).sum()
        through_V = (grad_V * dW / self._length_scales).sum()
        return Hyperparameters(
            log_term_stddevs=np.bincount(kinds, grad_log_stddevs, 3).astype(np.float64),
            log_noise=2 * (grad_K.diagonal() * self._noise).sum(),
            log_amplitude=2 * (grad_K * self._process).sum(),
            log_saturation=through_F + through_V,
            log_length_scales=-(grad_V * self._V).sum(axis=0),
        ).vector

    def _grad_V(self, grad_K: FloatArray) -> FloatArray:
        """Return the gradient of the loss with respect to V; (n, d).

        A distance r changes the kernel by -5/3 r (1 + x) exp(-x), where x is sqrt(5) r,
        and V_i changes the distance r_ij by (V_i - V_j) / r_ij: r cancels.
        """
        x = _SQRT5 * self._distances
        weights = 5 / 3 * self._theta.signal_variance * grad_K * (1 + x) * np.exp(-x)
        # Row i: the sum over j of weights_ij (V_j - V_i).
        sums = weights @ self._V - weights.sum(axis=1)[:, None] * self._V
        return np.asarray(2 * sums)  # a pair of merges is in the matrix twice


class Posterior:
    """The posterior for given hyperparameters (Rasmussen and Williams, algorithm 2.1).

    Notation: ``K`` (n, n) the covariance of ``z``, noise included, ``L`` its Cholesky
    factor, alpha = K^-1 z; ``k`` (m, n) that of new merges with the measured ones.
    """

    def __init__(self, data: TrainingData, z: FloatArray, theta: Hyperparameters):
        self._z = z
        self.theta = theta
        self.covariance = Covariance(data, theta)
        self._L = _cholesky_with_jitter(self.covariance.matrix)
        self.alpha: FloatArray = _solve(self._L, z)

    def negative_log_likelihood(self) -> float:
        """Return z' alpha / 2 + log det K / 2: up to a constant."""
        return float(self._z @ self.alpha / 2 + np.log(self._L.diagonal()).sum())

    def negative_log_likelihood_gradient(self) -> FloatArray:
        """Return the gradient of the negative log likelihood in theta; (6 + d,)."""
        # Equation 5.9.
        grad_K = (self._K_inverse() - np.outer(self.alpha, self.alpha)) / 2
        return self.covariance.gradient(grad_K)

    def _K_inverse(self) -> FloatArray:
        return _solve(self._L, np.eye(len(self.alpha)))

    def predict(self, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean k alpha and standard deviation, noise-free, at U (m, d); (m,)."""
        k, features = self.covariance.cross(U)
        v = solve_triangular(self._L, k.T, lower=True, check_finite=False)
        prior_variance = self.covariance.prior_variance(features)
        variance = np.maximum(prior_variance - (v**2).sum(axis=0), 0)
        return k @ self.alpha, np.sqrt(variance)

    def leave_one_out(self) -> tuple[FloatArray, FloatArray]:
        """Predict each merge from the others: mean, variance with noise; (n,) each."""
        variances = 1 / self._K_inverse().diagonal()  # equation 5.12
        return self._z - self.alpha * variances, variances


def _cholesky_with_jitter(K: FloatArray) -> FloatArray:
    """Return the Cholesky factor of a covariance; if it fails, of one with more jitter.

    Jitter is a constant on the diagonal, tenfold with every attempt.
    """
    jitter, largest = 0.0, float(np.abs(K).max())
    while jitter <= largest and 0 < largest < np.inf:
        L, failed = dpotrf(K + jitter * np.eye(len(K)) if jitter else K, lower=True)
        if not failed:
            return np.asarray(L)
        jitter = max(10 * jitter, 1e-12 * largest)
    raise DesignError("the measurements are too large or too small to be fitted")


def _solve(L: FloatArray, b: FloatArray) -> FloatArray:
    """Solve L L' x = b, without the checks of SciPy, which take a fifth of a fit."""
    return np.asarray(dpotrs(L, b, lower=True)[0])


def _distances(A: FloatArray, B: FloatArray) -> FloatArray:
    """Return the Euclidean distances of the rows of A (m, d) to those of B; (m, n)."""
    squares: FloatArray = (A**2).sum(axis=1)[:, None] + (B**2).sum(axis=1)
    squares -= 2 * A @ B.T
    np.maximum(squares, 0, out=squares)  # rounding leaves less between equal rows
    return np.sqrt(squares, out=squares)


def _matern(distance: FloatArray) -> FloatArray:
    """Return the Matérn-5/2 kernel of variance 1 at distances in length scales."""
    minus_x = -_SQRT5 * distance  # negated once: predictions spend their time here
    return np.asarray((1 - minus_x + minus_x**2 / 3) * np.exp(minus_x))


def _effect(U: FloatArray, log_saturation: float) -> FloatArray:
    """Return the effects of coefficients U, which saturate; (m, d).

    With the saturation ``a`` and u = U + 1/2, from 0 to 1 in the box, the effect is
    f(u) - 1/2, where f(u) = (1 - exp(-a u)) / (1 - exp(-a)): steep at 0, flatter
    towards 1. In SmolLM2, small weights change the metrics most
    (docs/results/smollm2.md). Below the box it goes on as a straight line.
    """
    a = math.exp(log_saturation)
    u = U + 0.5
    curved = -np.expm1(-a * np.maximum(u, 0))
    return np.asarray((a * np.minimum(u, 0) + curved) / -math.expm1(-a) - 0.5)


def _effect_derivative(U: FloatArray, log_saturation: float) -> FloatArray:
    """Return the derivative of the effect by log(a) in the box, where data are."""
    a = math.exp(log_saturation)
    u = U + 0.5
    denominator = -math.expm1(-a)
    exp_times_f = math.exp(-a) * -np.expm1(-a * u) / denominator
    return np.asarray(a * (u * np.exp(-a * u) - exp_times_f) / denominator)


@cache
def _kinds_of_terms(d: int) -> IntArray:
    """Return the kinds of terms after the intercept: linear 0, square 1, product 2."""
    rows, columns = np.triu_indices(d)
    return np.concatenate([np.zeros(d, dtype=np.int_), np.where(rows == columns, 1, 2)])


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
            log_saturation=np.log(0.01),
            log_length_scales=np.full(d, -1.0 + np.log(d) / 2),
        )

    @cached_property
    def prior_stddev(self) -> Hyperparameters:
        return Hyperparameters(
            log_term_stddevs=np.full(3, 1.5),
            log_noise=1.0 if self.data.known_noise else 2.0,
            log_amplitude=1.0,
            log_saturation=2.0,  # tiny models have hardly any, SmolLM2 1 to 3
            log_length_scales=np.full(self.data.U.shape[1], 0.6),
        )

    def maximize(
        self, start: Hyperparameters | None, *, quadratic_only: bool
    ) -> Hyperparameters:
        """Find the mode from a start; without one, from the better of two.

        A quadratic alone has one mode, almost always: from either start it is found.
        """
        from scipy.optimize import minimize  # here, as predictions do not need it

        mean, stddev = self.prior_mean, self.prior_stddev
        # The second start has more noise and saturation, and less process.
        noisy = replace(
            mean,
            log_noise=mean.log_noise + 0.75 * stddev.log_noise,
            log_amplitude=mean.log_amplitude - 1.5 * stddev.log_amplitude,
            log_saturation=mean.log_saturation + 2.0 * stddev.log_saturation,
        )
        starts = [start] if start else [noisy] if quadratic_only else [mean, noisy]
        lower, upper = _bounds(self.data.U.shape[1])
        if quadratic_only:
            # No process and no saturation: they stay at their lower bounds.
            upper = replace(upper, log_amplitude=_MIN_LOG, log_saturation=_MIN_LOG)
        bounds = list(zip(lower.vector, upper.vector, strict=True))
        results = [
            minimize(self._loss, x0.vector, jac=True, method="L-BFGS-B", bounds=bounds)
            for x0 in starts
        ]
        best = min(results, key=lambda result: result.fun)
        return Hyperparameters.from_vector(np.asarray(best.x))

    def draw(self, mode: Hyperparameters) -> tuple[list[Posterior], FloatArray]:
        """Return posteriors for thetas around the mode, with importance weights."""
        precisions, axes = self._laplace_axes(mode.vector)
        normals = _quasi_random_normals(len(precisions))
        unbounded = mode.vector + (normals / np.sqrt(precisions)) @ axes.T
        lower, upper = _bounds(self.data.U.shape[1])
        vectors = np.clip(unbounded, lower.vector, upper.vector)
        thetas = [Hyperparameters.from_vector(vector) for vector in vectors]
        draws = [Posterior(self.data, self.z, theta) for theta in thetas]
        log_likelihoods = np.array([-one.negative_log_likelihood() for one in draws])
        deviations = (vectors - self.prior_mean.vector) / self.prior_stddev.vector
        log_priors = -(deviations**2).sum(axis=1) / 2
        log_proposals = -(normals**2).sum(axis=1) / 2  # of the density drawn from
        log_weights = log_likelihoods + log_priors - log_proposals
        weights = np.exp(np.maximum(log_weights - log_weights.max(), -30.0))
        limited = np.minimum(weights / weights.sum(), _MAX_WEIGHT / _N_DRAWS)
        return draws, limited / limited.sum()

    def _loss(self, vector: FloatArray) -> tuple[float, FloatArray]:
        """Return the negative log posterior, up to a constant, and its gradient."""
        posterior = Posterior(self.data, self.z, Hyperparameters.from_vector(vector))
        prior_stddev = self.prior_stddev.vector
        deviation = (vector - self.prior_mean.vector) / prior_stddev
        loss = posterior.negative_log_likelihood() + deviation @ deviation / 2
        gradient = posterior.negative_log_likelihood_gradient()
        return float(loss), gradient + deviation / prior_stddev

    def _laplace_axes(self, mode: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return eigenvalues and eigenvectors (columns) of the Hessian at the mode."""
        step = 1e-3
        steps = step * np.eye(len(mode))
        rows = [self._loss(mode + s)[1] - self._loss(mode - s)[1] for s in steps]
        hessian = np.array(rows) / (2 * step)
        precisions, axes = np.linalg.eigh((hessian + hessian.T) / 2)
        smallest = 0.25 / self.prior_stddev.vector.max() ** 2
        # Both signs are right. This one does not depend on the order of coefficients.
        signs = np.where(axes.sum(axis=0) < 0, -1.0, 1.0)
        return np.maximum(precisions, smallest), axes * signs


def _bounds(d: int) -> tuple[Hyperparameters, Hyperparameters]:
    def filled(log: float, saturation: float, length: float) -> Hyperparameters:
        lengths = np.full(d, length)
        return Hyperparameters(np.full(3, log), log, log, saturation, lengths)

    lower = filled(_MIN_LOG, _MIN_LOG, _MIN_LOG_LENGTH)
    return lower, filled(_MAX_LOG, _MAX_LOG_SATURATION, _MAX_LOG_LENGTH)


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


def _inflation(draws: list[Posterior], weights: FloatArray, z: FloatArray) -> float:
    """Return the factor that widens the errors, for few merges and large LOO errors.

    Merges close to others inform little about the box and have small expected errors;
    each counts by its expected error. Small errors there narrow none elsewhere.
    """
    predictions = [posterior.leave_one_out() for posterior in draws]
    means, variances = (np.array(rows) for rows in zip(*predictions, strict=True))
    mean = weights @ means
    variance = weights @ (variances + (means - mean) ** 2)  # (n,) of the mixture
    ratio = np.clip(((z - mean) ** 2).sum() / variance.sum(), 1, _MAX_RATIO)
    n = len(z)
    shrunk = (_PRIOR_MERGES + n * ratio) / (_PRIOR_MERGES + n)  # towards 1
    return float(np.sqrt((1 + _SMALL_SAMPLE / n) * shrunk))


def _discrepancy(data: TrainingData, draws: list[Posterior]) -> FloatArray:
    """Estimate the part of the noise that is signal, a standard deviation per draw.

    Merges measured on the same items scatter by less than their standard errors: the
    smaller the scatter, the more of the remainder is the metric itself. A scatter above
    the noise is an error of the model. Where the noise is unknown, all of the scatter
    counts, as a second measurement would have the same result.
    """
    measured_noise = np.sqrt(np.median(data.noise_variance))
    ratio = np.exp([draw.theta.log_noise for draw in draws])  # scatter / measured noise
    if not data.known_noise:
        return np.asarray(measured_noise * ratio)
    unexplained = 1 - np.minimum(ratio, 1 / ratio) ** 2
    return np.asarray(measured_noise * ratio * unexplained)
