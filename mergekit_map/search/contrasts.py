"""How well a difference is known between merges that were measured on the same items.

Notation: ``k`` merges, ``n`` items, ``U`` (k, n) influences: how much each item moves
the value of each merge, to first order. The value of a mean moves by (x - mean) / n, a
ratio of sums by (y - ratio * w) / sum(w) (Cochran, Sampling Techniques, 1977, sections
5.9 and 6.4), a function of one of them by that times its slope.

A difference between merges has the differences of their influences: items are drawn
once for both, so that what is common to them, such as how hard an item is, drops out.
"""

from __future__ import annotations

import numpy as np

from mergekit_map.search.arrays import FloatArray, IntArray

_ROUNDING = 1e-9


def stderrs_of_differences(U: FloatArray, strata: IntArray) -> FloatArray:
    """Find the standard error of the difference between any two merges; (k, k).

    Args:
        U: (k, n) finite influences, which add up to 0 in each part.
        strata: (n,) which part of a group an item was drawn for; each has two or more.
            Parts are drawn by themselves, so that their variances add up.
    """
    variances = np.zeros((len(U), len(U)))
    for part in np.unique(strata):
        V = U[:, strata == part]
        n = V.shape[1]
        # Row by row: a Gram matrix would lose half the digits of a small difference.
        squares = np.array([np.square(V - row).sum(axis=1) for row in V])
        answer = _answer(V)
        if answer is None:
            variances += squares.reshape(variances.shape) * n / (n - 1)
        else:
            extra = answer**2 * (1 - np.eye(len(V)))
            variances += (squares + extra) * (n / (n + 2)) ** 2
    return np.asarray(np.sqrt(variances))


def _answer(V: FloatArray) -> float | None:
    """Tell how much one answer counts where all items are right or wrong, else None.

    Of a few dozen answers hardly any differ between two merges, and their variance says
    too little. Agresti and Min (Statistics in Medicine 24, 2005) add half an answer to
    each of the four ways in which two merges can answer.
    """
    low, high = V.min(axis=1, keepdims=True), V.max(axis=1, keepdims=True)
    steps = (high - low)[high > low]
    if not len(steps) or np.ptp(steps) > _ROUNDING * steps.max():
        return None
    near = np.minimum(V - low, high - V)
    return float(steps.max()) if near.max() <= _ROUNDING * steps.max() else None
