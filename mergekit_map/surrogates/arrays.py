"""Types and helpers for arrays: bounds, scaling to the unit box."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int_]
_ROUNDING = 1e-12  # relative, after a few operations


def inside(X: FloatArray, bounds: FloatArray) -> BoolArray:
    """Return which rows of X (k, d) lie within the bounds (d, 2), but for rounding."""
    beyond = np.abs(X - X.clip(*bounds.T))
    return np.asarray((beyond <= _ROUNDING * np.ptp(bounds, axis=1)).all(axis=1))


def ranges(Y: FloatArray) -> FloatArray:
    """Return the range of each column of Y (n, m) as a unit; 1 where it is constant."""
    return np.where(is_constant(Y), 1.0, np.ptp(Y, axis=0))


def is_constant(Y: FloatArray) -> BoolArray:
    """Return which columns of Y (n, m) differ by rounding alone; (m,)."""
    return np.asarray(np.ptp(Y, axis=0) <= _ROUNDING * np.abs(Y).max(axis=0))


def from_unit(U: FloatArray, bounds: FloatArray) -> FloatArray:
    """Scale points (k, d) of the unit box to the bounds (d, 2), and clip them."""
    lower, upper = bounds.T
    return np.asarray(np.clip(lower + U * (upper - lower), lower, upper))


def to_unit(X: FloatArray, bounds: FloatArray) -> FloatArray:
    """Scale points X (k, d) from the bounds (d, 2) to the unit box; (k, d)."""
    lower, upper = bounds.T
    return np.asarray((X - lower) / (upper - lower))


def scaled(X: FloatArray, bounds: FloatArray) -> FloatArray:
    """Scale X (n, d) to [-1/2, 1/2] by the bounds (d, 2).

    Around 0, so that shrinking the terms favours no corner of the box.
    """
    return to_unit(X, bounds) - 0.5


def weight(value: float) -> float:
    """Return a merge weight, which is 0 where rounding left almost nothing of it."""
    return 0.0 if abs(value) <= _ROUNDING else float(value)
