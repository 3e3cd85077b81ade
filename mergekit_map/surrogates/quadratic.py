"""The quadratic of section 3.1, equation 2: ``s(c) = e + b.c + c'Ac / 2``.

Notation: ``n`` points, ``d`` coefficients, ``X`` (n, d), ``t = (d + 1)(d + 2) / 2``
terms, always in the order intercept, linear, upper triangle of A row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``s(x) = intercept + linear @ x + x @ hessian @ x / 2``, hessian symmetric."""

    intercept: float
    linear: FloatArray  # (d,)
    hessian: FloatArray  # (d, d)

    def predict(self, X: FloatArray) -> FloatArray:
        """Evaluate at every row of ``X`` (n, d); returns (n,)."""
        curvature: FloatArray = (X @ self.hessian * X).sum(axis=1)
        return self.intercept + X @ self.linear + curvature / 2


def quadratic_from_terms(terms: FloatArray, bounds: FloatArray) -> Quadratic:
    """Convert a fit on the scaled coordinates ``z = (x - lower) / width`` to x.

    Args:
        terms: (t,) the weights of the columns of ``quadratic_features(z)``.
        bounds: (d, 2) the lower and upper ends that z = 0 and z = 1 stand for.
    """
    d = len(bounds)
    lower = bounds[:, 0]
    slope = 1 / (bounds[:, 1] - lower)
    rows, columns = np.triu_indices(d)
    scaled = np.zeros((d, d))
    scaled[rows, columns] = scaled[columns, rows] = terms[1 + d :]
    hessian = scaled * np.outer(slope, slope)
    scaled_linear = terms[1 : 1 + d] * slope
    linear = scaled_linear - hessian @ lower
    intercept = terms[0] - scaled_linear @ lower + lower @ hessian @ lower / 2
    return Quadratic(float(intercept), linear, hessian)


def n_quadratic_terms(d: int) -> int:
    """Count the parameters of a quadratic in d coefficients: (d + 1)(d + 2) / 2."""
    return (d + 1) * (d + 2) // 2


def quadratic_features(X: FloatArray) -> FloatArray:
    """Return the (n, t) matrix whose columns the terms of the quadratic weigh."""
    # Halving the squares makes every second-order term an entry of the hessian.
    rows, columns, squares = _pairs(X.shape[1])
    second_order = X[:, rows] * X[:, columns]
    second_order[:, squares] /= 2
    return np.hstack([np.ones((len(X), 1)), X, second_order])


@cache
def _pairs(d: int) -> tuple[IntArray, IntArray, BoolArray]:
    """List the pairs of coefficients of second-order terms, and which are squares."""
    rows, columns = np.triu_indices(d)
    return rows, columns, rows == columns
