"""How far to shrink the terms of a quadratic: ridge with its strength from the data.

Beyond the paper: with fewer evaluations than terms, or hardly more, least squares
follows the noise and the error of the quadratic shape. Here each term has a normal
prior around 0, one width for the linear terms, one for the squares and one for the
products; the widths and the noise are those under which the data are most probable
(evidence, or type II maximum likelihood). With plenty of data the fit is that of least
squares. Slopes err by more than values where the shape is not that of a quadratic, and
the evidence says by how much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from mergekit_map.search.arrays import FloatArray, IntArray
from mergekit_map.search.kernel import kinds_of_terms
from mergekit_map.search.least_squares import invert
from mergekit_map.search.links import Link
from mergekit_map.search.minimum import find_minimum
from mergekit_map.search.observations import Observations

# Where the logarithms start: of the widths and of the noise, in standard deviations of
# the metric, and of how much more a slope across the box errs than a value. And how
# vaguely we believe that; it only decides what the data leave open.
_START = np.log([1.0, 1.0, 1.0, 0.01, 1.0])
_VAGUENESS = np.array([4.0, 4.0, 4.0, 1.5, 1.0])


def shrink(observed: Observations, link: Link, d: int) -> tuple[Observations, float]:
    """Choose how far to shrink and what slopes weigh; also give the noise variance.

    ``observed`` must not be shrunk already; ``d`` is the number of coefficients. The
    constant term stays free. The variance is that of a point of weight 1, in the
    metric's units squared.
    """
    # Behind the link the model is linear, and the evidence has a closed form.
    linear = invert(observed, link)
    scale = _scale(linear)
    kinds = kinds_of_terms(d)
    rows = np.array([linear.n_rows, len(linear.slopes)])
    evidence = _Evidence(*_gram(linear, scale), kinds, rows)
    bounds = [(-14.0, 10.0)] * 4 + [(-3.0, 3.0)]
    found = find_minimum(evidence.surprise, _START, bounds).x
    variance = math.exp(2 * found[3])
    shrinkage = np.where(kinds < 0, 0.0, variance * np.exp(-2 * found[kinds]))
    weight = math.exp(-2 * found[4])
    shrunk = replace(observed, shrinkage=shrinkage, slope_weight=weight)
    return shrunk, variance * scale**2


@dataclass(frozen=True, eq=False)
class _Evidence:
    """How probable the data are, given the logarithms of widths and noises: (5,)."""

    values: FloatArray  # (t + 1, t + 1) of the values, as ``_gram`` has it
    slopes: FloatArray  # (t + 1, t + 1)
    kinds: IntArray  # (t,)
    rows: IntArray  # (2,) how many, and how many of these are slopes

    def surprise(self, logs: FloatArray) -> tuple[float, FloatArray]:
        """Minus the logarithm of the evidence, up to a constant; with its slopes."""
        terms = [self.kinds == kind for kind in range(3)]
        count = np.array([*(part.sum() for part in terms), *self.rows])
        precision = np.where(self.kinds < 0, 0.0, np.exp(-2 * logs[self.kinds]))
        of_slopes = self.slopes * math.exp(-2 * (logs[3] + logs[4]))
        both = self.values * math.exp(-2 * logs[3]) + of_slopes
        matrix = both[:-1, :-1] + np.diag(precision)
        sign, determinant = np.linalg.slogdet(matrix)
        if sign <= 0:
            return 1e12, np.zeros_like(logs)
        inverse = np.linalg.inv(matrix)
        best = inverse @ both[:-1, -1]
        misfit = both[-1, -1] - both[-1, :-1] @ best
        away = (logs - _START) / _VAGUENESS
        value = misfit + determinant + 2 * (logs @ count) + away @ away
        # How misfit and determinant change with the rows, and with each precision.
        outer = np.outer(np.append(-best, 1), np.append(-best, 1))
        outer[:-1, :-1] += inverse
        known = precision * (best**2 + inverse.diagonal())
        changes = [known[part].sum() for part in terms]
        changes += [(outer * both).sum(), (outer * of_slopes).sum()]
        return float(value) / 2, count - np.array(changes) + away / _VAGUENESS


def _scale(linear: Observations) -> float:
    """Give the standard deviation of the values, 1 where that is 0."""
    spread = linear.weights @ (linear.y - linear.y.mean()) ** 2 / len(linear.y)
    return math.sqrt(spread) or 1.0


def _gram(linear: Observations, scale: float) -> tuple[FloatArray, FloatArray]:
    """Multiply out the rows [features, target] of the values and of the slopes.

    Each is (t + 1, t + 1); targets are in units of ``scale``.
    """
    root, slope_root = linear.root_weights
    targets = (linear.y - linear.y.mean()) / scale
    values = root[:, None] * np.column_stack([linear.features, targets])
    rows = np.column_stack([linear.slope_features, linear.slopes / scale])
    slopes = slope_root[:, None] * rows
    return values.T @ values, slopes.T @ slopes
