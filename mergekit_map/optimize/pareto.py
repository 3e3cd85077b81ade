"""The hypervolume that a further merge would add to a set of merges.

Notation: ``k`` candidates, ``n`` merges measured already, ``m`` tasks; larger is
better, in units in which a front runs from 0 to 1.
"""

from __future__ import annotations

import moocore
import numpy as np

from mergekit_map.surrogates.arrays import FloatArray

# Volumes reach a little below the nadir, so that the ends of a front count.
_BELOW_NADIR = -0.1
# Exact volumes take time exponential in the tasks; with more, along so many directions
# they are near enough.
_MOST_TASKS, _DIRECTIONS = 5, 2**14


def gains(Y: FloatArray, known: FloatArray) -> FloatArray:
    """Return the hypervolume that each candidate alone would add; (k,).

    Args:
        Y: (k, m) the candidates.
        known: (n, m) merges that are there.
    """
    n, m = known.shape
    before = volume(known, _BELOW_NADIR)
    if not 1 < m <= _MOST_TASKS:
        both = (volume(np.vstack([known, row]), _BELOW_NADIR) for row in Y)
        return np.array([after - before for after in both])
    exact = moocore.Hypervolume(ref=np.full(m, -_BELOW_NADIR))
    costs, found = np.empty((n + 1, m)), np.empty(len(Y))
    costs[:n] = -known
    for index, row in enumerate(-Y):
        costs[n] = row
        found[index] = exact(costs)
    return np.asarray(found - before)


def gained(Y: FloatArray, known: FloatArray) -> float:
    """Return the share by which the hypervolume of Y (k, m) exceeds that of known."""
    before = volume(known, _BELOW_NADIR)
    return max(volume(Y, _BELOW_NADIR) / (before or 1.0) - 1, 0.0)


def volume(Y: FloatArray, worst: float) -> float:
    """Return the hypervolume of Y (n, m) above ``worst`` on every task."""
    if not len(Y):
        return 0.0
    if Y.shape[1] == 1:
        return float(max(Y.max() - worst, 0))
    if Y.shape[1] <= _MOST_TASKS:
        return float(moocore.hypervolume(-Y, ref=-worst))
    return float(moocore.hv_approx(-Y, ref=-worst, nsamples=_DIRECTIONS))
