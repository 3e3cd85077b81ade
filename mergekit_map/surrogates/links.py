"""Links from a quadratic to a metric: the three cases of section 3.1, corollary 1.

A metric on the whole real line is the quadratic itself, one in [l, u] is
``(u - l) sigmoid(s) + l``, one in [l, inf) is ``softplus(s) + l``. The paper does not
treat (-inf, u]; we mirror its third case, ``u - softplus(-s)``. All four increase in
``s``, so the direction of a metric is that of its quadratic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from mergekit_map.surrogates.arrays import FloatArray

# How far ``invert`` keeps off a bound: a fraction of the range, or of one unit of the
# metric where the range has one bound only (softplus bends within a unit of it).
INVERT_MARGIN = 1e-6


@dataclass(frozen=True)
class Link:
    """A strictly increasing map from the real line onto the range of a metric.

    Infinite bounds stand for "unbounded"; both default to it. Arrays of any shape go
    in and come out with that shape; NaN stays NaN.

    Raises:
        ValueError: the bounds are NaN or not in increasing order.
    """

    lower: float = -math.inf
    upper: float = math.inf

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise ValueError(f"a metric's range is empty: [{self.lower}, {self.upper}]")

    @property
    def is_identity(self) -> bool:
        """Whether the metric is the quadratic itself (case 1)."""
        return self.lower == -math.inf and self.upper == math.inf

    def apply(self, s: FloatArray) -> FloatArray:
        """Return the metric at the quadratic's values ``s``, in the metric's units.

        Far out it rounds to the bound itself, never beyond it.
        """
        if self.is_identity:
            return s.copy()
        if self.upper == math.inf:
            return _softplus(s) + self.lower
        if self.lower == -math.inf:
            return self.upper - _softplus(-s)
        value: FloatArray = (self.upper - self.lower) * expit(s) + self.lower
        return np.minimum(value, self.upper)

    def derivative(self, s: FloatArray) -> FloatArray:
        """Return the derivative of ``apply`` at ``s``; zero far from the bend."""
        if self.is_identity:
            return np.ones_like(s)
        if self.upper == math.inf:
            return expit(s)
        if self.lower == -math.inf:
            return expit(-s)
        return (self.upper - self.lower) * expit(s) * expit(-s)

    def invert(self, y: FloatArray) -> FloatArray:
        """Return quadratic values that give the metric values ``y``.

        Exact inside the range. Nearer to a bound than ``INVERT_MARGIN``, on it or
        beyond it, where the inverse is infinite or does not exist, ``y`` is first moved
        to that margin: good enough to start a fit from, never used as an observation.
        """
        if self.is_identity:
            return y.copy()
        if self.upper == math.inf:
            return _softplus_inverse(y - self.lower)
        if self.lower == -math.inf:
            return -_softplus_inverse(self.upper - y)
        fraction = (y - self.lower) / (self.upper - self.lower)
        return logit(np.clip(fraction, INVERT_MARGIN, 1 - INVERT_MARGIN))


def _softplus(s: FloatArray) -> FloatArray:
    # log(1 + exp(s)) without overflow; np.logaddexp would warn about NaN.
    return np.maximum(s, 0) + np.log1p(np.exp(-np.abs(s)))


def _softplus_inverse(distance: FloatArray) -> FloatArray:
    # log(exp(x) - 1), written so that neither end overflows or cancels.
    x = np.maximum(distance, INVERT_MARGIN)
    return x + np.log(-np.expm1(-x))
