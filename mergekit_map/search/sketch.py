"""A quick look at a front: where it runs, not its every point.

To plan the next measurement a front is wanted after every merge, and exactness is of no
use while it is uncertain. Notation: ``d`` coefficients, ``m`` tasks, larger is better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.stats import qmc

from mergekit_map.search.arrays import FloatArray, from_unit
from mergekit_map.search.dense import non_dominated

Predict: TypeAlias = Callable[[FloatArray], FloatArray]  # (k, d) -> (k, m)

_N_SAMPLES = 1024
_STEPS = (0.1, 0.03, 0.01)  # of the box: how far points are moved, round after round
_N_MOVED = 512
_MOST = 256  # points


def sketch_front(predict: Predict, bounds: FloatArray) -> FloatArray:
    """Find about where the front runs, and the best point of each task.

    Samples the box, then moves what nothing dominates by smaller and smaller steps. The
    same predictions give the same points.

    Returns:
        (k, d) of the box, none of which another dominates.
    """
    d = len(bounds)
    rng = np.random.default_rng(0)
    U = np.asarray(qmc.Sobol(d, scramble=False).random(_N_SAMPLES))
    Y = predict(from_unit(U, bounds))
    for step in _STEPS:
        U, Y = _kept(U, Y)
        moved = U[np.arange(_N_MOVED) % len(U)]
        moved = np.clip(moved + step * rng.normal(size=moved.shape), 0, 1)
        U = np.vstack([U, moved])
        Y = np.vstack([Y, predict(from_unit(moved, bounds))])
    return from_unit(_kept(U, Y)[0], bounds)


def _kept(U: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep what nothing dominates; of too many points all ends, and a share evenly."""
    front = np.flatnonzero(non_dominated(Y))
    if len(front) > _MOST:
        ends = front[Y[front].argmax(axis=0)]
        every = front[:: -(-len(front) // _MOST)]
        front = np.unique(np.concatenate([ends, every]))
    return U[front], Y[front]
