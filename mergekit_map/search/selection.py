"""Pick points of a front once it is known; costs no evaluation.

Notation: ``Y`` (n, m) the metrics of n front points, larger is better. Tasks have
different units, so each is first scaled to [0, 1] between its worst (nadir) and best
(ideal) value over Y. The paper's preference-weighted sum takes the metrics as they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mergekit_map.errors import DesignError

FloatArray = NDArray[np.float64]

# Scores and distances nearer than this are ties: they differ by rounding.
TIE = 1e-12


def select_by_preference(Y: FloatArray, weights: FloatArray) -> int:
    """Return the row with the largest preference-weighted sum of the scaled metrics.

    A task that is constant over Y contributes nothing. Ties go to the point nearest to
    the ideal point, then to the lowest index.

    Args:
        Y: (n, m) finite metrics of at least one point.
        weights: (m,) the preference, any scale: only the ratios count.

    Raises:
        DesignError: a weight is negative or not finite, or all are 0.
        ValueError: Y is empty, not finite, or of another width than the weights.
    """
    scaled = _scale(Y)
    if weights.shape != (Y.shape[1],):
        raise ValueError(f"{Y.shape[1]} tasks need as many weights, got {weights}")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DesignError(
            "a preference needs weights that are finite and not negative, with at "
            f"least one above 0, got {weights.tolist()}; give a task you do not care "
            "for the weight 0 and the others a positive one"
        )
    # Divided by the largest first, as the sum of huge weights may overflow.
    relative = weights / weights.max()
    score = scaled @ (relative / relative.sum())
    tied = np.flatnonzero(score >= score.max() - TIE)
    distance = np.linalg.norm(1 - scaled[tied], axis=1)
    return int(tied[np.argmax(distance <= distance.min() + TIE)])


def spread(Y: FloatArray, k: int) -> NDArray[np.int_]:
    """Choose up to k rows that show the whole front, in the order chosen.

    First the best point of each task (of equal ones that with the largest sum of
    scaled metrics), then again and again the point farthest from all chosen so far.
    Fewer than k if Y has fewer rows that differ; fewer extremes if k is below m.

    Args:
        Y: (n, m) finite metrics of at least one point.
        k: How many rows at most, at least 0.

    Raises:
        ValueError: Y is empty or not finite, or k is negative.
    """
    if k < 0:
        raise ValueError(f"cannot choose {k} points")
    scaled = _scale(Y)
    total = scaled.sum(axis=1)
    chosen: list[int] = []
    nearest = np.full(len(Y), np.inf)  # distance to the nearest chosen point

    def choose(index: int) -> None:
        chosen.append(index)
        np.minimum(nearest, np.linalg.norm(scaled - scaled[index], axis=1), out=nearest)

    for task in scaled.T:
        best = np.where(task >= task.max() - TIE, total, -np.inf)
        if len(chosen) < k and nearest[best.argmax()] > TIE:
            choose(int(best.argmax()))
    while len(chosen) < k and nearest.max() > TIE:
        choose(int(nearest.argmax()))
    return np.array(chosen, dtype=np.int_)


def _scale(Y: FloatArray) -> FloatArray:
    """Map each task's nadir to 0 and its ideal to 1; a constant task to 1."""
    if Y.ndim != 2 or 0 in Y.shape:
        raise ValueError(f"metrics must be (n, m) of at least one point, got {Y.shape}")
    if not np.isfinite(Y).all():
        raise ValueError("metrics must be finite")
    nadir, ideal = Y.min(axis=0), Y.max(axis=0)
    width = ideal - nadir
    constant = width <= TIE * np.abs(Y).max(axis=0)
    scaled: FloatArray = (Y - nadir) / np.where(constant, 1.0, width)
    scaled[:, constant] = 1.0  # at its ideal everywhere: no say in any comparison
    return scaled
