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


def stderrs_of_differences(U: FloatArray, strata: IntArray) -> FloatArray:
    """Find the standard error of the difference between any two merges; (k, k).

    Args:
        U: (k, n) finite influences, which add up to 0 in each part.
        strata: (n,) which part of a group an item was drawn for; each has two or more.
            Parts are drawn by themselves, so that their variances add up.
    """
    _, parts, sizes = np.unique(strata, return_inverse=True, return_counts=True)
    C = U * np.sqrt(sizes / (sizes - 1))[parts]
    # Row by row: a Gram matrix would lose half the digits of a small difference.
    squares = [np.square(C - row).sum(axis=1) for row in C]
    found: FloatArray = np.sqrt(np.array(squares).reshape(len(U), len(U)))
    return found
