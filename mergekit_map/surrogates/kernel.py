"""The covariance of a metric: quadratic, Matérn-5/2 process and noise.

Notation: ``n`` merges, ``d`` coefficients, ``U`` (n, d) scaled to [-1/2, 1/2] by the
bounds of the search, ``W`` (n, d) their saturating effect; ``t`` terms of the
quadratic; ``theta`` the hyperparameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import (
    directional_derivative,
    quadratic_features,
)

_INTERCEPT_STDDEV = 10.0  # as good as free
_JITTER = 1e-10
_LINEAR = 1e-4  # a saturation below which its exponential would cancel
_SQRT5 = math.sqrt(5)
# Correlation between the errors that a choice of documents, the same for all, makes of
# any two merges: in between of errors of their own and one that all have in common.
_SAMPLING_CORRELATION = 0.5


@dataclass(frozen=True, eq=False)
class Hyperparameters:
    """The hyperparameters of the covariance, most of them as logarithms.

    An optimizer varies them as one vector (6 + d,) in this order.
    """

    log_term_stddevs: FloatArray  # (3,) priors of linear terms, squares, products
    log_noise: float  # factor on the standard deviations of ``TrainingData``
    log_amplitude: float  # standard deviation of the process
    saturation: float  # of the effect of a weight, per width of the box
    log_length_scales: FloatArray  # (d,) of its kernel, in widths of the box

    @classmethod
    def from_vector(cls, vector: FloatArray) -> Hyperparameters:
        """Build from the vector that an optimizer varies."""
        return cls(vector[:3], vector[3], vector[4], vector[5], vector[6:])

    @property
    def vector(self) -> FloatArray:
        """Return the vector that an optimizer varies; (6 + d,)."""
        scalars = [self.log_noise, self.log_amplitude, self.saturation]
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


def saturating(U: FloatArray, saturation: float) -> FloatArray:
    """Return an effect of coefficients U that saturates; (k, d).

    Most of what a weight does to a language model it does while it is small: in eight
    searches of SmolLM2, by this, docs/results/smollm2.md. The effect maps [-1/2, 1/2]
    to itself, as (1 - exp(-a u)) / (1 - exp(-a)), where ``a`` is the saturation and
    ``u`` counts from the lower bound. A saturation of 0 is the identity.
    """
    if abs(saturation) < _LINEAR:
        return U + saturation * (0.25 - U**2) / 2
    effect = np.expm1(-saturation * (U + 0.5)) / np.expm1(-saturation)
    return np.asarray(effect - 0.5)


def saturating_slope(U: FloatArray, saturation: float) -> FloatArray:
    """Return the derivative of ``saturating`` by the saturation; (k, d)."""
    if abs(saturation) < _LINEAR:
        return np.asarray((0.25 - U**2) / 2)
    u, whole = U + 0.5, np.expm1(-saturation)
    rest = np.exp(-saturation) * np.expm1(-saturation * u) / whole
    return np.asarray((rest - u * np.exp(-saturation * u)) / whole)


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The measured merges and their noise."""

    U: FloatArray  # (n, d)
    noise_variance: FloatArray  # (n,), which a hyperparameter scales
    # (n,), or (1,) for all: variance of a choice of documents, which none scales.
    sampling_variance: FloatArray = field(default_factory=lambda: np.zeros(1))
    known_noise: bool = True  # measured; otherwise ``noise_variance`` is a mere unit


@cache
def kinds_of_terms(d: int) -> IntArray:
    """Return the kinds of terms: constant -1, linear 0, square 1, product 2; (t,)."""
    rows, columns = np.triu_indices(d)
    second_order = np.where(rows == columns, 1, 2)
    return np.concatenate([[-1], np.zeros(d, dtype=np.int_), second_order])


def kernel_correlation(V: FloatArray, W: FloatArray, scales: FloatArray) -> FloatArray:
    """Return the correlation of the process at V (k, d) and W (n, d); (k, n).

    ``scales`` (d,) are the length scales.
    """
    V, W = V / scales, W / scales
    squares: FloatArray = (V**2).sum(axis=1)[:, None] + (W**2).sum(axis=1)
    squares -= 2 * V @ W.T
    np.maximum(squares, 0, out=squares)
    return matern(np.sqrt(squares, out=squares))


class Covariance:
    """The covariance of the training data with noise, and its derivatives by theta."""

    def __init__(self, data: TrainingData, theta: Hyperparameters):
        self._data, self._theta = data, theta
        self.W = saturating(data.U, theta.saturation)  # (n, d)
        self.features = quadratic_features(self.W)
        self._scaled_features = self.features * theta.term_stddevs
        self._scales = np.exp(theta.log_length_scales)
        # (n, n, d) distances along each axis, in length scales
        self._distances = (self.W[:, None] - self.W) / self._scales
        # As ``matern`` has it, whose factors the gradient uses again.
        distance = _SQRT5 * np.sqrt((self._distances**2).sum(axis=2))
        self._linear_factor, self._decay = 1 + distance, np.exp(-distance)
        correlation = (self._linear_factor + distance**2 / 3) * self._decay
        self._process = theta.signal_variance * correlation
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
        W, theta = saturating(U, self._theta.saturation), self._theta
        features = quadratic_features(W)
        covariance: FloatArray = (features * theta.term_stddevs**2) @ self.features.T
        correlation = kernel_correlation(W, self.W, self._scales)
        return covariance + theta.signal_variance * correlation, features

    def gradient(self, weights: FloatArray) -> FloatArray:
        """Differentiate ``(weights * matrix).sum()`` by theta; (6 + d,).

        The weights (n, n) are symmetric.
        """
        weighted = weights @ self._scaled_features
        by_term = (weighted * self._scaled_features).sum(axis=0)
        by_kind = np.bincount(kinds_of_terms(self.W.shape[1]) + 1, by_term, 4)[1:]
        by_noise = (weights.diagonal() * self._noise).sum()
        by_amplitude = (weights * self._process).sum()
        # Twice minus the derivative of the kernel by the square of the distance.
        slope = weights * self._theta.signal_variance * 5 / 3
        slope = slope * self._linear_factor * self._decay
        by_length_scales = np.einsum("ij,ijk->k", slope, self._distances**2)

        moved = saturating_slope(self._data.U, self._theta.saturation)
        of_features = directional_derivative(self.W, moved) * self._theta.term_stddevs
        of_distances = (moved[:, None] - moved) / self._scales
        by_saturation = 2 * (weighted * of_features).sum() - np.einsum(
            "ij,ijk,ijk->", slope, self._distances, of_distances
        )
        doubled = 2 * np.array([*by_kind, by_noise, by_amplitude])
        return np.concatenate([doubled, [by_saturation], by_length_scales])


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
