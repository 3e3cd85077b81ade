"""Numbers and arrays of them: types, what is finite, boxes that points lie in."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int_]


def finite(value: float | None) -> float | None:
    """Take NaN and infinity for None, as JSON has neither."""
    return None if value is None or not math.isfinite(value) else value


def inside(X: FloatArray, bounds: FloatArray) -> BoolArray:
    """Tell which rows of X (k, d) lie in the box with these ends (d, 2); (k,)."""
    found: BoolArray = np.all((bounds[:, 0] <= X) & (bounds[:, 1] >= X), axis=1)
    return found


def ranges(Y: FloatArray) -> FloatArray:
    """Give the range of each column of Y (n, m), as a unit: 1 where it has none."""
    width = np.ptp(Y, axis=0)
    return np.where(width > 0, width, 1.0)


def from_unit(U: FloatArray, bounds: FloatArray) -> FloatArray:
    """Stretch points (k, d) of the unit box to a box (d, 2), which none leaves."""
    lower, upper = bounds.T
    points: FloatArray = np.clip(lower + U * (upper - lower), lower, upper)
    return points


def to_unit(X: FloatArray, bounds: FloatArray) -> FloatArray:
    """Shrink a box (d, 2) and what lies around it to the unit box; (k, d)."""
    lower, upper = bounds.T
    unit: FloatArray = (X - lower) / (upper - lower)
    return unit
