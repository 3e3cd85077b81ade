"""The quadratic of section 3.1, equation 2: ``s(c) = e + b.c + c'Ac / 2``.

Notation: ``n`` points, ``d`` coefficients, ``X`` (n, d), ``t = (d + 1)(d + 2) / 2``
terms, always in the order intercept, linear, upper triangle of A row by row.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray, to_unit


def scaled(X: FloatArray, bounds: FloatArray) -> FloatArray:
    """Scale X (n, d) to [-1/2, 1/2] by the bounds (d, 2).

    Around 0, so that shrinking the terms favours no corner of the box.
    """
    return to_unit(X, bounds) - 0.5


def n_quadratic_terms(d: int) -> int:
    """Count the parameters of a quadratic in d coefficients: (d + 1)(d + 2) / 2."""
    return (d + 1) * (d + 2) // 2


def quadratic_features(X: FloatArray) -> FloatArray:
    """Return the (n, t) matrix whose columns the terms of the quadratic weigh."""
    # Halving the squares makes every second-order term an entry of the hessian.
    rows, columns, is_square = _second_order_pairs(X.shape[1])
    second_order = X[:, rows] * X[:, columns]
    second_order[:, is_square] /= 2
    return np.hstack([np.ones((len(X), 1)), X, second_order])


@cache
def _second_order_pairs(d: int) -> tuple[IntArray, IntArray, BoolArray]:
    """List the pairs of coefficients of second-order terms, and which are squares."""
    rows, columns = np.triu_indices(d)
    return rows, columns, rows == columns
