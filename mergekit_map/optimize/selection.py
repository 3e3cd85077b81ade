"""Selection of points of a known front; costs no evaluation.

Notation: ``Y`` (n, m) the metrics of n front points, larger is better. Tasks have
different units, so each is first scaled to [0, 1] between its worst (nadir) and best
(ideal) value over Y. The paper has one way to choose, the preference-weighted sum, and
takes the metrics as they are; the other ways are ours.

``allowed`` (n,) says which points may be chosen, by default all. The others still take
part in the scaling, so that a limit that the choice keeps anyway changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mergekit_map.surrogates.arrays import BoolArray, FloatArray, IntArray
from mergekit_map.types import SIGNIFICANT

# Scores and distances nearer than this are ties: they differ by rounding.
TIE = 1e-12
# Share of the sum in the achievement function: enough to leave points that are only
# weakly better, too little to move the choice along a front.
_AUGMENTATION = 1e-4
Kind = Literal["one point", "within noise", "one best", "trade-off"]


def select_by_preference(
    Y: FloatArray, weights: FloatArray, allowed: BoolArray | None = None
) -> int:
    """Return the row with the largest preference-weighted sum of the scaled metrics.

    With equal weights it is the *knee*: the row from which every other one loses at
    least what it gains, in totals over the scaled metrics (Rachmawati and Srinivasan,
    2009). Of two tasks it is farthest beyond the chord between the front's ends.

    A task that is constant over Y contributes nothing. Ties go to the point nearest to
    the ideal point, then to the lowest index. Points in a hollow of the front are never
    chosen, whatever the weights: see ``select_by_achievement``.

    Args:
        Y: (n, m) finite metrics of at least one point.
        weights: (m,) the preference, 0 or more and not all 0; only ratios count.
        allowed: (n,) which rows may be chosen, at least one.
    """
    scaled = _scale(Y)
    return _best(scaled @ _shares(weights), scaled, allowed)


def select_by_achievement(
    Y: FloatArray, weights: FloatArray, allowed: BoolArray | None = None
) -> int:
    """Return the row that on its worst task is nearest to the ideal, weighted.

    Wierzbicki's achievement function with the ideal point as its reference, also known
    as the augmented weighted Chebyshev distance: the largest ``weight * (1 - scaled)``
    over the tasks, plus a small share of their sum. For some weights any point of a
    front is the choice, in its hollows too. Arguments and ties as for
    ``select_by_preference``.
    """
    scaled = _scale(Y)
    missing = _shares(weights) * (1 - scaled)
    worst = missing.max(axis=1) + _AUGMENTATION * missing.sum(axis=1)
    return _best(-worst, scaled, allowed)


def nearest_to_limits(Y: FloatArray, lower: FloatArray) -> int:
    """Return the row that falls short of its limits by the smallest sum of shares.

    The shortfall of a task counts as a share of its range over Y.

    Args:
        Y: (n, m) finite metrics of at least one point.
        lower: (m,) the limits, -inf where a task has none.
    """
    width = np.ptp(Y, axis=0)
    constant = width <= TIE * np.abs(Y).max(axis=0)  # misses alike at every point
    short = np.maximum(lower - Y, 0) / np.where(constant, np.inf, width)
    return _best(-short.sum(axis=1), _scale(Y), None)


def spread(Y: FloatArray, k: int) -> IntArray:
    """Choose up to k rows that show the whole front, in the order chosen.

    First the best point of each task (of equal ones that with the largest sum of
    scaled metrics), then again and again the point farthest from all chosen so far.
    Fewer than k if Y has fewer rows that differ; fewer extremes if k is below m.

    Args:
        Y: (n, m) finite metrics of at least one point.
        k: How many rows at most, at least 0.
    """
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


def _best(score: FloatArray, scaled: FloatArray, allowed: BoolArray | None) -> int:
    """Find the allowed row of the largest score; of ties the nearest to the ideal."""
    if allowed is not None:
        score = np.where(allowed, score, -np.inf)
    tied = np.flatnonzero(score >= score.max() - TIE)
    distance = np.linalg.norm(1 - scaled[tied], axis=1)
    return int(tied[np.argmax(distance <= distance.min() + TIE)])


def _shares(weights: FloatArray) -> FloatArray:
    """Divide a preference by its sum."""
    # Divided by the largest first, as the sum of huge weights may overflow.
    relative = weights / weights.max()
    return np.asarray(relative / relative.sum())


def _scale(Y: FloatArray) -> FloatArray:
    """Map each task's nadir to 0 and its ideal to 1; a constant task to 1."""
    nadir, width = Y.min(axis=0), np.ptp(Y, axis=0)
    constant = width <= TIE * np.abs(Y).max(axis=0)
    scaled = (Y - nadir) / np.where(constant, 1.0, width)
    # At its ideal everywhere a task has no say in any comparison.
    return np.where(constant, 1.0, scaled)


@dataclass(frozen=True)
class TradeOff:
    """Whether the points of a front trade tasks against one another.

    ``kind`` is "one point" where all points are equal, "within noise" where every point
    is within noise of the best on every task, "one best" where only some points are,
    and "trade-off" where none is.
    """

    kind: Kind
    best: int | None  # the point to take; None where that is a matter of preference


def detect_tradeoff(Y: FloatArray, stderr: FloatArray) -> TradeOff:
    """Return whether a front is a trade-off, and which point to take if it is not.

    Of the points that will do, that with the largest equally weighted sum is taken. A
    difference whose noise is unknown counts as real.

    Args:
        Y: (k, m) finite metrics of at least one point.
        stderr: (k, m) standard errors, 0 or more; NaN where unknown.
    """
    equal = np.ones(Y.shape[1])
    balanced = select_by_preference(Y, equal)
    best, task = Y.argmax(axis=0), np.arange(Y.shape[1])
    behind = Y[best, task] - Y
    noise = SIGNIFICANT * stderr_of_difference(stderr[best, task], stderr)
    rounding = TIE * np.abs(Y).max(axis=0)
    will_do = (behind <= np.fmax(noise, rounding)).all(axis=1)  # fmax passes over NaN
    if (behind <= rounding).all():
        return TradeOff("one point", balanced)
    if will_do.all():
        return TradeOff("within noise", balanced)
    if will_do.any():
        return TradeOff("one best", select_by_preference(Y, equal, will_do))
    return TradeOff("trade-off", None)


def stderr_of_difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Combine two standard errors as if independent; NaN where neither is known.

    Where one is known, the difference has at least the noise of that one. Two merges
    measured on the same items err together: where their records can be compared, that
    is better. Predictions of one surrogate may err together or against one another; the
    front does not carry their covariance.
    """
    known = np.hypot(np.nan_to_num(first), np.nan_to_num(second))
    return np.where(np.isnan(first) & np.isnan(second), np.nan, known)
