"""The covariance of a metric: quadratic, Matérn-5/2 process and noise.

Notation: ``n`` merges, ``d`` coefficients, ``U`` (n, d) scaled to [-1/2, 1/2] by the
bounds of the search; ``t`` terms. ``theta`` (5 + d,) holds the logarithms of the
standard deviations of linear terms, squares, products, noise and the process, then of
the length scales of its kernel, in widths of the box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import quadratic_features

NOISE, AMPLITUDE, LENGTH_SCALES = 3, 4, 5  # places in theta, after the three widths
_INTERCEPT = 10.0  # its standard deviation: as good as free
_JITTER = 1e-10
_ROOT5 = math.sqrt(5)
# How alike the errors are that a choice of documents, the same for all, makes of any
# two merges: in between of errors of their own and one that all have in common.
_ALIKE = 0.5


@dataclass(frozen=True, eq=False)
class Rows:
    """The training data: the measured merges, a row each, and their noise."""

    U: FloatArray  # (n, d)
    noise: FloatArray  # (n,) variances, in units of that in theta
    # (n,), or (1,) for all: variances of a choice of documents, whatever theta is.
    sampling: FloatArray = field(default_factory=lambda: np.zeros(1))

    @cached_property
    def features(self) -> FloatArray:
        """Return the features of the quadratic; (n, t)."""
        return quadratic_features(self.U)

    @cached_property
    def apart(self) -> FloatArray:
        """Return the distances between the merges along each coefficient; (n, n, d)."""
        return np.asarray(self.U[:, None] - self.U)

    @cached_property
    def constant(self) -> FloatArray:
        """Return the covariance of the constant term; (n, n)."""
        constant = _INTERCEPT * self.features[:, :1]
        return np.asarray(constant @ constant.T)

    @cached_property
    def products(self) -> list[FloatArray]:
        """Return the covariance of linear terms, squares and products; (n, n)."""
        kinds = kinds_of_terms(self.U.shape[1])
        parts = [self.features[:, kinds == kind] for kind in range(3)]
        return [part @ part.T for part in parts]


@cache
def kinds_of_terms(d: int) -> IntArray:
    """Return the kinds of terms: constant -1, linear 0, square 1, product 2; (t,)."""
    rows, columns = np.triu_indices(d)
    second_order = np.where(rows == columns, 1, 2)
    return np.concatenate([[-1], np.zeros(d, dtype=np.int_), second_order])


def term_widths(d: int, theta: FloatArray) -> FloatArray:
    """Return the prior standard deviations of the terms; (t,)."""
    kinds = kinds_of_terms(d)
    return np.asarray(np.where(kinds < 0, _INTERCEPT, np.exp(theta[kinds])))


def covariance_to(
    rows: Rows, theta: FloatArray, U: FloatArray, features: FloatArray
) -> FloatArray:
    """Return the covariance of the metric at U (k, d) with the rows; (k, n).

    ``features`` (k, t) are those of U.
    """
    widths = term_widths(U.shape[1], theta)
    found: FloatArray = (features * widths**2) @ rows.features.T
    lengths = np.exp(theta[LENGTH_SCALES:])
    near = matern(distances(U / lengths, rows.U / lengths))
    found += math.exp(2 * theta[AMPLITUDE]) * near
    return found


def variance(theta: FloatArray, features: FloatArray) -> FloatArray:
    """Return the prior variance of the metric at merges with features (k, t); (k,)."""
    d = len(theta) - LENGTH_SCALES
    terms = (features * term_widths(d, theta)) ** 2
    return np.asarray(terms.sum(axis=1) + math.exp(2 * theta[AMPLITUDE]))


class Covariance:
    """The covariance of the rows with their noise, and its derivatives by theta."""

    def __init__(self, rows: Rows, theta: FloatArray):
        self._rows, self._theta = rows, theta
        self._squares = (rows.apart / np.exp(theta[LENGTH_SCALES:])) ** 2
        self._height = math.exp(2 * theta[AMPLITUDE])
        # As ``matern`` has it, whose parts the gradient uses again.
        far = _ROOT5 * np.sqrt(self._squares.sum(axis=2))
        self._near, self._fall = 1 + far, np.exp(-far)
        self._process = self._height * ((self._near + far**2 / 3) * self._fall)
        self.whole: FloatArray = rows.constant.copy()  # (n, n)
        for width, product in zip(theta[:3], rows.products, strict=True):
            self.whole += math.exp(2 * width) * product
        self.whole += self._process
        diagonal = self.whole.reshape(-1)[:: len(self.whole) + 1]
        self._noise = np.exp(2 * theta[NOISE]) * rows.noise
        diagonal += self._noise + (1 - _ALIKE) * rows.sampling + _JITTER
        self.whole += _ALIKE * np.sqrt(np.outer(rows.sampling, rows.sampling))

    def gradient(self, outer: FloatArray) -> FloatArray:
        """Differentiate ``(outer * whole).sum()`` by theta; outer (n, n), symmetric."""
        widths = [
            math.exp(2 * width) * (outer * product).sum()
            for width, product in zip(self._theta[:3], self._rows.products, strict=True)
        ]
        noise = (outer.diagonal() * self._noise).sum()
        height = (outer * self._process).sum()
        # Twice minus the derivative of the kernel by the square of the distance.
        bend = outer * self._height * 5 / 3 * self._near * self._fall
        lengths = np.einsum("ij,ijk->k", bend, self._squares)
        return np.concatenate([2 * np.array([*widths, noise, height]), lengths])


def distances(U: FloatArray, V: FloatArray) -> FloatArray:
    """Return the distances between rows of U (k, d) and V (n, d); (k, n)."""
    squares: FloatArray = (U**2).sum(axis=1)[:, None] + (V**2).sum(axis=1)
    squares -= 2 * U @ V.T
    np.maximum(squares, 0, out=squares)
    return np.sqrt(squares, out=squares)


def matern(distance: FloatArray) -> FloatArray:
    """Return the Matérn-5/2 kernel of height 1 at distances in length scales."""
    # (1 + far + far**2 / 3) * exp(-far), in as little memory: it is called most of all.
    far: FloatArray = _ROOT5 * distance
    bent, found = far**2, 1 + far
    bent /= 3
    found += bent
    np.negative(far, out=far)
    found *= np.exp(far, out=far)
    return found
