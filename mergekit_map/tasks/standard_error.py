"""Standard errors of means and of ratios of sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def ratio_standard_error(
    totals: Sequence[float], weights: Sequence[float]
) -> float | None:
    """Estimate the standard error of ``sum(totals) / sum(weights)``.

    The linearised estimator of survey sampling (Cochran, Sampling Techniques, 1977,
    section 6.4), with the items as independent draws; with equal weights it is the
    standard error of a mean. None with fewer than two items.
    """
    n = len(totals)
    if n < 2:
        return None
    y = np.asarray(totals, dtype=np.float64)  # (n,)
    w = np.asarray(weights, dtype=np.float64)  # (n,)
    with np.errstate(invalid="ignore"):  # infinite losses give NaN, as they should
        residuals = y - y.sum() / w.sum() * w
        squares = float(residuals @ residuals)
    return math.sqrt(squares * n / (n - 1)) / float(w.sum())
