"""The covariance of a metric: quadratic, Matérn-5/2 process and noise.

Notation: ``n`` merges, ``d`` coefficients, ``U`` (n, d) scaled to [-1/2, 1/2] by the
bounds of the search; ``t`` terms of the quadratic; ``theta`` the hyperparameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import quadratic_features

_INTERCEPT_STDDEV = 10.0  # as good as free
_JITTER = 1e-10
_SQRT5 = math.sqrt(5)
# Correlation between the errors that a choice of documents, the same for all, makes of
# any two merges: in between of errors of their own and one that all have in common.
_SAMPLING_CORRELATION = 0.5


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The hyperparameters of the covariance, as logarithms.

    An optimizer varies them as one vector (5 + d,) in this order.
    """

    log_term_stddevs: FloatArray  # (3,) priors of linear terms, squares, products
    log_noise: float  # factor on the standard deviations of ``TrainingData``
    log_amplitude: float  # standard deviation of the process
    log_length_scales: FloatArray  # (d,) of its kernel, in widths of the box

    @classmethod
    def from_vector(cls, vector: FloatArray) -> Hyperparameters:
        """Build from the vector that an optimizer varies."""
        return cls(vector[:3], vector[3], vector[4], vector[5:])

    @property
    def vector(self) -> FloatArray:
        """Return the vector that an optimizer varies; (5 + d,)."""
        scalars = [self.log_noise, self.log_amplitude]
        return np.concatenate([self.log_term_stddevs, scalars, self.log_length_scales])

    @property
    def signal_variance(self) -> float:
        """Return the variance of the process."""
        return math.exp(2 * self.log_amplitude)

    @property
    def term_stddevs(self) -> FloatArray:
        """Return the prior standard deviation of every term of the quadratic; (t,)."""
        kinds = kinds_of_terms(len(self.log_length_scales))
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

    @cached_property
    def features(self) -> FloatArray:
        """Return the features of the quadratic; (n, t)."""
        return quadratic_features(self.U)

    @cached_property
    def displacements(self) -> FloatArray:
        """Return the distances between the merges along each coefficient; (n, n, d)."""
        return np.asarray(self.U[:, None] - self.U)

    @cached_property
    def intercept_covariance(self) -> FloatArray:
        """Return the covariance of the constant term; (n, n)."""
        intercept = _INTERCEPT_STDDEV * self.features[:, :1]
        return np.asarray(intercept @ intercept.T)

    @cached_property
    def gram_matrices(self) -> list[FloatArray]:
        """Return the Gram matrices of linear terms, squares and products; (n, n)."""
        kinds = kinds_of_terms(self.U.shape[1])
        columns = [self.features[:, kinds == kind] for kind in range(3)]
        return [features @ features.T for features in columns]


@cache
def kinds_of_terms(d: int) -> IntArray:
    """Return the kinds of terms: constant -1, linear 0, square 1, product 2; (t,)."""
    rows, columns = np.triu_indices(d)
    second_order = np.where(rows == columns, 1, 2)
    return np.concatenate([[-1], np.zeros(d, dtype=np.int_), second_order])


def cross_covariance(
    data: TrainingData, theta: Hyperparameters, U: FloatArray, features: FloatArray
) -> FloatArray:
    """Return the covariance of the metric at U (k, d) with the training data; (k, n).

    ``features`` (k, t) are those of U.
    """
    covariance: FloatArray = (features * theta.term_stddevs**2) @ data.features.T
    covariance += theta.signal_variance * kernel_correlation(data, theta, U)
    return covariance


def kernel_correlation(
    data: TrainingData, theta: Hyperparameters, U: FloatArray
) -> FloatArray:
    """Return the correlation of the process at U (k, d) with the data; (k, n)."""
    length_scales = np.exp(theta.log_length_scales)
    V, W = U / length_scales, data.U / length_scales
    squares: FloatArray = (V**2).sum(axis=1)[:, None] + (W**2).sum(axis=1)
    squares -= 2 * V @ W.T
    np.maximum(squares, 0, out=squares)
    return matern(np.sqrt(squares, out=squares))


class Covariance:
    """The covariance of the training data with noise, and its derivatives by theta."""

    def __init__(self, data: TrainingData, theta: Hyperparameters):
        term_variances = [math.exp(2 * stddev) for stddev in theta.log_term_stddevs]
        self._terms = list(zip(term_variances, data.gram_matrices, strict=True))
        # (n, n, d) squared distances along each axis, in length scales
        self._squares = (data.displacements / np.exp(theta.log_length_scales)) ** 2
        self._signal_variance = theta.signal_variance
        # As ``matern`` has it, whose factors the gradient uses again.
        distance = _SQRT5 * np.sqrt(self._squares.sum(axis=2))
        self._linear_factor, self._decay = 1 + distance, np.exp(-distance)
        correlation = (self._linear_factor + distance**2 / 3) * self._decay
        self._process = self._signal_variance * correlation
        self._noise = np.exp(2 * theta.log_noise) * data.noise_variance

        self.matrix: FloatArray = data.intercept_covariance.copy()  # (n, n)
        for variance, gram in self._terms:
            self.matrix += variance * gram
        self.matrix += self._process
        sampling, common = data.sampling_variance, _SAMPLING_CORRELATION
        diagonal = self.matrix.reshape(-1)[:: len(self.matrix) + 1]  # a view
        diagonal += self._noise + (1 - common) * sampling + _JITTER
        self.matrix += common * np.sqrt(np.outer(sampling, sampling))

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Differentiate ``(weights * matrix).sum()`` by theta; (5 + d,).

        The weights (n, n) are symmetric.
        """
        by_terms = [variance * (weights * gram).sum() for variance, gram in self._terms]
        by_noise = (weights.diagonal() * self._noise).sum()
        by_amplitude = (weights * self._process).sum()
        # Twice minus the derivative of the kernel by the square of the distance.
        slope = weights * self._signal_variance * 5 / 3
        slope = slope * self._linear_factor * self._decay
        by_length_scales = np.einsum("ij,ijk->k", slope, self._squares)
        doubled = 2 * np.array([*by_terms, by_noise, by_amplitude])
        return np.concatenate([doubled, by_length_scales])


def matern(distance: FloatArray) -> FloatArray:
    """Return the Matérn-5/2 kernel of variance 1 at distances in length scales."""
    # (1 + r + r**2 / 3) * exp(-r), in as little memory: it is called most of all.
    r: FloatArray = _SQRT5 * distance
    square, correlation = r**2, 1 + r
    square /= 3
    correlation += square
    np.negative(r, out=r)
    correlation *= np.exp(r, out=r)
    return correlation
