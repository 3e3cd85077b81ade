"""How a search went: what was measured in which order, and what that added.

Notation: ``n`` merges in the order in which they were measured, ``m`` tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mergekit_map.publish.measured_merges import MeasuredMerge
from mergekit_map.results.front import Front, Reading
from mergekit_map.results.log import Role
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.gain import volume

# Volumes reach a little below the worst value of each task, so that ends count.
_BELOW_WORST = -0.1
_MOST_VOLUMES = 200  # of a long search: the volume of others is that of the one before
# What others measured, or what documents say that the search did not see.
_NOT_OF_IT: frozenset[Role] = frozenset({"opponent", "baseline", "holdout"})


def history_content(front: Front, merges: Sequence[MeasuredMerge]) -> dict[str, object]:
    """Give the places of merges in the history, and the volume that each reached."""
    places = [
        index
        for index, merge in enumerate(merges)
        if None not in merge.coefficients and not set(merge.roles) <= _NOT_OF_IT
    ]
    own = [merges[index] for index in places]
    volumes = [
        None if math.isnan(share) else float(f"{share:.5g}")
        for share in grown_volumes(_utilities(front, own))
    ]
    return {"places": places, "volume": volumes}


def grown_volumes(Y: FloatArray) -> FloatArray:
    """Give the hypervolume after each merge, as a share of the last; (n,).

    Tasks are scaled so that the merges run from 0 to 1. A merge that lacks a task,
    where Y (n, m) is NaN, adds nothing. NaN until a merge is whole. Of long searches
    some volumes are taken, so that a picture of them costs no more than that.
    """
    whole = np.asarray(np.isfinite(Y).all(axis=1))
    if not whole.any():
        return np.full(len(Y), np.nan)
    worst, best = Y[whole].min(axis=0), Y[whole].max(axis=0)
    scaled = (Y - worst) / np.where(best > worst, best - worst, 1.0)
    grown, last = np.full(len(Y), np.nan), 0.0
    front, due = np.empty((0, Y.shape[1])), False
    taken = {*np.linspace(0, len(Y) - 1, _MOST_VOLUMES).round().astype(int).tolist()}
    for row in range(len(Y)):
        if whole[row] and not (front >= scaled[row]).all(axis=1).any():
            beaten = (scaled[row] >= front).all(axis=1)
            front, due = np.vstack([front[~beaten], scaled[row]]), True
        if due and (row in taken or not last):
            last, due = volume(front, _BELOW_WORST), False
        if len(front):
            grown[row] = last
    return grown / last


def _utilities(front: Front, merges: Sequence[MeasuredMerge]) -> FloatArray:
    metrics = front.metrics.values()

    def read(reading: Reading, sign: float) -> float:
        return math.nan if reading.value is None else sign * reading.value

    rows = [
        [
            read(r, metric.sign)
            for r, metric in zip(merge.measured, metrics, strict=True)
        ]
        for merge in merges
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(front.tasks))
