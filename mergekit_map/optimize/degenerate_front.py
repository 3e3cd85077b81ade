"""A test whether a front is a trade-off; the paper names its lack as a limitation.

Notation: ``Y`` (k, m) the metrics of k points, larger is better; ``stderr`` (k, m)
their standard errors, NaN where unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mergekit_map.optimize.selection import TIE, select_by_preference
from mergekit_map.surrogates.arrays import BoolArray, FloatArray
from mergekit_map.types import SIGNIFICANT

Kind = Literal["one point", "within noise", "one best", "trade-off"]


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Whether the points of a front trade tasks against one another.

    ``kind`` is "one point" where all points are equal, "within noise" where every point
    is within noise of the best on every task, "one best" where only some points are,
    and "trade-off" where none is.
    """

    kind: Kind
    best: int | None  # the point to take; None where that is a matter of preference
    spread: FloatArray  # (m,) best minus worst of each task
    noise: FloatArray  # (m,) how much of that noise explains; NaN where unknown
    trades: BoolArray  # (m,) whether some point is behind the best by more than noise


def detect_tradeoff(Y: FloatArray, stderr: FloatArray) -> TradeOff:
    """Return whether a front is a trade-off, and which point to take if it is not.

    Of the points that will do, that with the largest equally weighted sum is taken. A
    difference whose noise is unknown counts as real.

    Args:
        Y: (k, m) finite metrics of at least one point.
        stderr: (k, m) standard errors, 0 or more; NaN where unknown.

    Raises:
        ValueError: Y is empty or not finite, or stderr is of another shape.
    """
    if stderr.shape != Y.shape:
        raise ValueError(f"standard errors are {stderr.shape}, metrics {Y.shape}")
    equal = np.ones(Y.shape[1])
    balanced = select_by_preference(Y, equal)  # refuses what is no front
    best, worst, task = Y.argmax(axis=0), Y.argmin(axis=0), np.arange(Y.shape[1])
    behind = Y[best, task] - Y
    noise = SIGNIFICANT * stderr_of_difference(stderr[best, task], stderr)
    rounding = TIE * np.abs(Y).max(axis=0)
    near = behind <= np.fmax(noise, rounding)  # fmax passes over NaN
    will_do = near.all(axis=1)
    if (behind <= rounding).all():
        kind: Kind = "one point"
    elif will_do.all():
        kind = "within noise"
    elif will_do.any():
        kind = "one best"
        balanced = select_by_preference(Y, equal, will_do)
    else:
        kind = "trade-off"
    return TradeOff(
        kind=kind,
        best=None if kind == "trade-off" else balanced,
        spread=behind[worst, task],
        noise=noise[worst, task],
        trades=~near.all(axis=0),
    )


def stderr_of_difference(first: FloatArray, second: FloatArray) -> FloatArray:
    """Combine two standard errors as if independent; NaN where neither is known.

    Where one is known, the difference has at least the noise of that one. Two merges
    measured on the same items err together: where their records can be compared, that
    is better. Predictions of one surrogate may err together or against one another; the
    front does not carry their covariance.
    """
    known = np.hypot(np.nan_to_num(first), np.nan_to_num(second))
    return np.where(np.isnan(first) & np.isnan(second), np.nan, known)
