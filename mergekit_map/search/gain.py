"""What a further merge would add to a set of merges: hypervolume.

Notation: ``k`` candidates, ``n`` merges that are there, ``m`` tasks; larger is better,
in units in which a front runs from 0 to 1.
"""

from __future__ import annotations

import moocore
import numpy as np

from mergekit_map.search.arrays import FloatArray

# Volumes reach a little below the nadir, so that the ends of a front count.
_REFERENCE = 1.1
# Exact volumes take time exponential in the tasks; with more, distance must do.
_MOST_TASKS = 5


def gains(Y: FloatArray, known: FloatArray) -> FloatArray:
    """Give the hypervolume that each candidate alone would add; (k,).

    With many tasks, its distance to the nearest merge instead.

    Args:
        Y: (k, m) the candidates.
        known: (n, m) merges that are there.
    """
    m = Y.shape[1]
    if m > _MOST_TASKS:
        apart = np.linalg.norm(Y[:, None] - known, axis=2)
        return np.asarray(apart.min(axis=1, initial=np.inf))
    before = _volume(known)
    return np.array([_volume(np.vstack([known, row])) - before for row in Y])


def gained(Y: FloatArray, known: FloatArray) -> float:
    """Give the share by which the hypervolume of Y (k, m) exceeds that of known."""
    return max(_volume(Y) / (_volume(known) or 1.0) - 1, 0.0)


def choose_by_gain(Y: FloatArray, known: FloatArray, count: int) -> list[int]:
    """Choose up to so many candidates, each the one that adds most to all before it."""
    chosen: list[int] = []
    for _ in range(min(count, len(Y))):
        worth = gains(Y, np.vstack([known, Y[chosen]]))
        worth[chosen] = -np.inf
        chosen.append(int(worth.argmax()))
    return chosen


def _volume(Y: FloatArray) -> float:
    if not len(Y):
        return 0.0
    if Y.shape[1] == 1:
        return float(max(Y.max() - 1 + _REFERENCE, 0))
    exact = Y.shape[1] <= _MOST_TASKS
    volume = moocore.hypervolume if exact else moocore.hv_approx
    return float(volume(1 - Y, ref=_REFERENCE))
