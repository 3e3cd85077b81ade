"""How far predictions may be off the truth, in the metric's units.

A surrogate with a process is as uncertain as that process, averaged over all that it
might be. Notation: ``k`` places, ``s`` (k,) predictions behind the link.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.links import Link
from mergekit_map.search.process import Process

# Equally likely places of a normal distribution of variance 1.
_NODES = np.array([NormalDist().inv_cdf((i + 0.5) / 16) for i in range(16)])
_NODES = _NODES / np.sqrt((_NODES**2).mean())
_AT_ONCE = 1 << 13  # places, each of which is thousands of numbers


def spread(process: Process, link: Link, U: FloatArray, s: FloatArray) -> FloatArray:
    """Give the standard error of predictions at U (k, d), in the metric's units; (k,).

    The root mean square of how far the metric is from the prediction, over what the
    process expects.
    """
    parts = []
    for start in range(0, max(len(U), 1), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        off = possible(process, link, U[part]) - link.apply(s[part])
        parts.append(np.sqrt(process.weights @ (off**2).mean(axis=0)))
    return np.concatenate(parts)


def widened(link: Link, s: FloatArray, deviation: FloatArray) -> FloatArray:
    """Give the standard error in the metric's units of that behind the link; (k,)."""
    off = link.apply(s + _NODES[:, None] * deviation) - link.apply(s)
    return np.asarray(np.sqrt((off**2).mean(axis=0)))


def possible(process: Process, link: Link, U: FloatArray) -> FloatArray:
    """Give what the metric may be at U (k, d): (16, N_DRAWS, k)."""
    mean, deviation = process.predict(U)
    return link.apply(mean + _NODES[:, None, None] * deviation)
