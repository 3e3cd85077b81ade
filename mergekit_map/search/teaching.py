"""How much further measurements would teach of a front, before they are made.

Notation: ``k`` merges of a front, ``c`` merges that may be measured.
"""

from __future__ import annotations

import numpy as np

from mergekit_map.search.arrays import BoolArray, FloatArray
from mergekit_map.search.observations import scaled
from mergekit_map.search.surrogate import Surrogate


def taught(
    surrogate: Surrogate,
    front: FloatArray,
    X: FloatArray,
    stderr: FloatArray,
    again: BoolArray,
) -> FloatArray:
    """Give by how much each merge, if measured, lowers the variance over a front; (c,).

    In the metric's units, squared, on average over the front. Where the metric is as
    the most probable process has it, what is measured does not matter, only where
    (Rasmussen and Williams 2006, equation 2.26). 0 where a surrogate has no process.

    Args:
        surrogate: Fitted to what is known.
        front: (k, d) merges.
        X: (c, d) the merges that may be measured, each alone.
        stderr: (c,) that a choice of documents has, in the metric's units.
        again: (c,) whether that is of a measurement which there is, and whose square
            twice as many documents would halve.
    """
    process, link = surrogate.process, surrogate.link
    if process is None:
        return np.zeros(len(X))
    U, V = scaled(X, surrogate.bounds), scaled(front, surrogate.bounds)
    own, shared = process.covariance(U, U).diagonal(), process.covariance(V, U)
    # The link is straight enough around what is predicted.
    at, over = (link.derivative(link.invert(surrogate.predict(W))) for W in (X, front))
    other, sampling = process.noise_of_new(), (stderr / at) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        # As precise as one measurement with this noise would be, beside that of before.
        more = (other + sampling) * (2 * other + sampling) / sampling
    noise = np.where(
        again, np.nan_to_num(more, nan=np.inf, posinf=np.inf), other + sampling
    )
    gained = (over[:, None] * shared) ** 2 / (own + noise)
    return np.asarray(gained.mean(axis=0))
