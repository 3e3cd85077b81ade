"""How much a further measurement would teach of a front, before it is made.

Notation: ``k`` merges of a front, all coefficients scaled as the process has them.
"""

from __future__ import annotations

import numpy as np

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.observations import scaled
from mergekit_map.search.surrogate import Surrogate


def taught(
    surrogate: Surrogate, front: FloatArray, x: FloatArray, stderr: float
) -> float:
    """Give by how much the variance of predictions falls, on average over a front.

    In the metric's units, squared. Where the metric is as the most probable process
    has it, what is measured does not matter, only where (Rasmussen and Williams 2006,
    equation 2.26). 0 where a surrogate has no process.

    Args:
        surrogate: Fitted to what is known.
        front: (k, d) merges.
        x: (d,) the merge to measure.
        stderr: Of that measurement, in the metric's units.
    """
    process = surrogate.process
    if process is None:
        return 0.0
    X = scaled(np.vstack([x, front]), surrogate.bounds)
    shared = process.covariance(X[1:], X[:1])[:, 0]
    own = float(process.covariance(X[:1], X[:1])[0, 0])
    slopes = surrogate.link.derivative(process.weights @ process.predict(X)[0])
    noise = (stderr / max(float(slopes[0]), 1e-12)) ** 2 + process.noise_of_new()
    gained = (slopes[1:] * shared) ** 2 / (own + noise)
    return float(gained.mean())
