"""The covariance of a metric: quadratic, Matérn-5/2 process and noise.

Notation: ``n`` merges, ``d`` coefficients, ``U`` (n, d) scaled to [-1/2, 1/2] by the
bounds of the search; ``r`` rows, the values at all merges, then the slopes at some,
which inform the quadratic only; ``t`` terms. ``theta`` (6 + d,) holds the logarithms of
the standard deviations of linear terms, squares, products, noise of values, noise of
slopes and the process, then of the length scales of its kernel, in widths of the box.

A residual is the mean of such a process, added to a quadratic behind the link.

The Cholesky functions call LAPACK directly and return the same bits as SciPy's. The
matrices here are so small that SciPy's checks of the arguments take longer than the
solution, and they are factorised many thousand times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from mergekit_map.surrogates.arrays import FloatArray, IntArray
from mergekit_map.surrogates.quadratic import quadratic_features, quadratic_slopes

NOISE, SLOPES, HEIGHT, LENGTHS = 3, 4, 5, 6  # places in theta, after the three widths
_INTERCEPT = 10.0  # its standard deviation: as good as free
_JITTER = 1e-10
_ROOT5 = math.sqrt(5)
# How alike the errors are that a choice of documents, the same for all, makes of any
# two merges: in between of errors of their own and one that all have in common.
_ALIKE = 0.5


@dataclass(frozen=True, eq=False)
class Rows:
    """The measurements: values and slopes with their points and noise."""

    U: FloatArray  # (n, d)
    sloped: IntArray  # (s,) the merges with d slopes each
    noise: FloatArray  # (r,) variances, in units of those in theta
    # (r,), or (1,) for all: variances of a choice of documents, whatever theta is.
    sampling: FloatArray = field(default_factory=lambda: np.zeros(1))

    @cached_property
    def features(self) -> FloatArray:
        """Return the features of values, then of slopes; (r, t)."""
        values = quadratic_features(self.U)
        slopes = quadratic_slopes(self.U[self.sloped])
        return np.vstack([values, slopes.reshape(-1, values.shape[1])])

    @cached_property
    def apart(self) -> FloatArray:
        """Return the distances between the merges along each coefficient; (n, n, d)."""
        return np.asarray(self.U[:, None] - self.U)

    @cached_property
    def constant(self) -> FloatArray:
        """Return the covariance of the constant term; (r, r)."""
        constant = _INTERCEPT * self.features[:, :1]
        return np.asarray(constant @ constant.T)

    @cached_property
    def products(self) -> list[FloatArray]:
        """Return the covariance of linear terms, squares and products; (r, r)."""
        kinds = kinds_of_terms(self.U.shape[1])
        parts = [self.features[:, kinds == kind] for kind in range(3)]
        return [part @ part.T for part in parts]

    def block(self, merge: int) -> IntArray:
        """List the rows of a merge: its value, and its slopes if it has some."""
        n, d = self.U.shape
        owned = np.flatnonzero(np.repeat(self.sloped, d) == merge)
        return np.append(merge, n + owned)


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


def noise_variances(rows: Rows, theta: FloatArray) -> FloatArray:
    """Return the variance of the noise of each row, without that of subsets; (r,)."""
    of_values = np.arange(len(rows.noise)) < len(rows.U)
    of_rows = np.where(of_values, theta[NOISE], theta[SLOPES])
    return np.asarray(np.exp(2 * of_rows) * rows.noise)


def covariance_to(
    rows: Rows, theta: FloatArray, U: FloatArray, features: FloatArray
) -> FloatArray:
    """Return the covariance of the metric at U (k, d) with the rows; (k, r).

    ``features`` (k, t) are those of U.
    """
    n, d = rows.U.shape
    found: FloatArray = (features * term_widths(d, theta) ** 2) @ rows.features.T
    lengths = np.exp(theta[LENGTHS:])
    near = matern(distances(U / lengths, rows.U / lengths))
    found[:, :n] += math.exp(2 * theta[HEIGHT]) * near
    return found


def variance(theta: FloatArray, features: FloatArray) -> FloatArray:
    """Return the prior variance of the metric at merges with features (k, t); (k,)."""
    d = len(theta) - LENGTHS
    terms = (features * term_widths(d, theta)) ** 2
    return np.asarray(terms.sum(axis=1) + math.exp(2 * theta[HEIGHT]))


class Covariance:
    """The covariance of the rows with their noise, and its derivatives by theta."""

    def __init__(self, rows: Rows, theta: FloatArray):
        self._rows, self._theta = rows, theta
        self._squares = (rows.apart / np.exp(theta[LENGTHS:])) ** 2
        self._height, n = math.exp(2 * theta[HEIGHT]), len(rows.U)
        # As ``matern`` has it, whose parts the slopes use again.
        far = _ROOT5 * np.sqrt(self._squares.sum(axis=2))
        self._near, self._fall = 1 + far, np.exp(-far)
        self._process = self._height * ((self._near + far**2 / 3) * self._fall)
        self.whole: FloatArray = rows.constant.copy()  # (r, r)
        for width, product in zip(theta[:3], rows.products, strict=True):
            self.whole += math.exp(2 * width) * product
        self.whole[:n, :n] += self._process
        diagonal = self.whole.reshape(-1)[:: len(self.whole) + 1]
        self._noise = noise_variances(rows, theta)
        diagonal += self._noise + (1 - _ALIKE) * rows.sampling + _JITTER
        self.whole += _ALIKE * np.sqrt(np.outer(rows.sampling, rows.sampling))

    def slopes(self, outer: FloatArray) -> FloatArray:
        """Differentiate ``(outer * whole).sum()`` by theta; outer (r, r), symmetric."""
        rows, theta = self._rows, self._theta
        n = len(rows.U)
        noise = outer.diagonal() * self._noise
        inner = outer[:n, :n]
        widths = [
            math.exp(2 * width) * (outer * product).sum()
            for width, product in zip(theta[:3], rows.products, strict=True)
        ]
        # Twice minus the derivative of the kernel by the square of the distance.
        bend = inner * self._height * 5 / 3 * self._near * self._fall
        lengths = np.einsum("ij,ijk->k", bend, self._squares)
        height = (inner * self._process).sum()
        parts = [*widths, noise[:n].sum(), noise[n:].sum(), height]
        return np.concatenate([2 * np.array(parts), lengths])


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


def lower_root(matrix: FloatArray) -> FloatArray:
    """Return the lower Cholesky factor of a symmetric matrix.

    Raises:
        LinAlgError: the matrix is not positive definite, or not finite.
    """
    root, info = dpotrf(matrix, lower=1, clean=1)
    if info:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    return np.asarray(root)


def solve_by_root(root: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a linear system whose matrix has the lower factor ``root``."""
    return np.asarray(dpotrs(root, right, lower=1)[0])


def solve_root(root: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a linear system whose matrix is the lower factor ``root``."""
    return np.asarray(dtrtrs(root, right, lower=1)[0])


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
