"""Which models to merge first: the order of nested MAP (appendix, algorithm 3).

Notation: ``N`` single models, ``g`` groups of them, ``m`` tasks, ``Y`` (N, m) what was
measured of the single models, larger is better, NaN where it failed.

The paper pairs one model per task by its loss. Here models and tasks are independent:
a model owns the tasks it is best at, a group those of its members. Losses of different
tasks have different units, so each is scaled: 1 is the worst single model, 0 is the
best possible value where there is one, or else the best single model.
"""

from __future__ import annotations

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray, IntArray


def best_models(Y: FloatArray) -> IntArray:
    """Return the best model of each task; (m,), ties go to the first.

    A model that could not be measured is never the best, unless none could be: then the
    first one is.
    """
    best: IntArray = np.where(np.isnan(Y), -np.inf, Y).argmax(axis=0)
    return best


def scaled_losses(values: FloatArray, Y: FloatArray, ideal: FloatArray) -> FloatArray:
    """Scale measured values of any merges to losses, smaller is better.

    Args:
        values: (k, m) metrics, larger is better.
        Y: (N, m) those of the single models.
        ideal: (m,) the largest possible values, infinite where there is none.

    Returns:
        (k, m) losses; 1 where a value is NaN, 0 for a task whose single models are all
        at the ideal, or all alike where there is none.
    """
    measured = ~np.isnan(Y)
    worst = np.where(measured, Y, np.inf).min(axis=0)
    best = np.where(measured, Y, -np.inf).max(axis=0)
    zero = np.where(np.isfinite(ideal), ideal, best)
    width = zero - worst
    # A task on which no single model could be measured has no scale.
    usable = measured.any(axis=0) & (width > 0)
    losses = np.zeros(values.shape)
    losses[:, usable] = (zero - values)[:, usable] / width[usable]
    return np.where(np.isnan(values), 1.0, losses)


def group_loss(losses: FloatArray, weights: FloatArray) -> float:
    """Average the losses (k,) of a group's tasks by preference (k,), k > 0.

    If no task of the group is preferred, all count alike.
    """
    shares = weights if weights.any() else np.ones_like(weights)
    return float(np.average(losses, weights=shares))


def closest_pair(losses: FloatArray) -> tuple[int, int]:
    """Find the two groups whose losses (g,) are closest, g > 1; of ties the first."""
    rows, columns = np.triu_indices(len(losses), k=1)
    nearest = int(np.abs(losses[rows] - losses[columns]).argmin())
    return int(rows[nearest]), int(columns[nearest])
