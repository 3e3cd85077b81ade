"""The standard error of a prediction, in the units of the metric.

A surrogate with a process is as uncertain as that process, averaged over its draws.
Notation: ``k`` points, ``s`` (k,) predictions behind the link.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.gaussian_process import Process
from mergekit_map.surrogates.links import Link

# Equally likely places of a normal distribution of variance 1.
_NODES = np.array([NormalDist().inv_cdf((i + 0.5) / 16) for i in range(16)])


_NODES = _NODES / np.sqrt((_NODES**2).mean())


_AT_ONCE = 1 << 13  # places, each of which is thousands of numbers


def prediction_stderr(
    process: Process, link: Link, U: FloatArray, s: FloatArray
) -> FloatArray:
    """Return the standard error of predictions at U (k, d), in metric units; (k,).

    It is the root mean square error of the prediction over the draws of the process.
    """
    parts = []
    for start in range(0, max(len(U), 1), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        off = draw_metric(process, link, U[part]) - link.apply(s[part])
        parts.append(np.sqrt(process.weights @ (off**2).mean(axis=0)))
    return np.concatenate(parts)


def stderr_in_metric(link: Link, s: FloatArray, deviation: FloatArray) -> FloatArray:
    """Convert a standard error behind the link to the metric's units; (k,)."""
    off = link.apply(s + _NODES[:, None] * deviation) - link.apply(s)
    return np.asarray(np.sqrt((off**2).mean(axis=0)))


def draw_metric(process: Process, link: Link, U: FloatArray) -> FloatArray:
    """Draw values that the metric may have at U (k, d): (16, N_DRAWS, k)."""
    mean, deviation = process.predict(U)
    return link.apply(mean + _NODES[:, None, None] * deviation)
