"""Metrics of lm-eval that are a mean of documents, a ratio, or its exponential."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from lm_eval.api import metrics

from mergekit_map.surrogates.arrays import FloatArray

_RATIOS = (metrics.weighted_perplexity, metrics.bits_per_byte)
_KNOWN = (metrics.mean, metrics.perplexity, *_RATIOS)


@dataclass(frozen=True, eq=False)
class Average:
    """The ratio of two sums over documents, or its exponential."""

    totals: FloatArray  # (n,)
    weights: FloatArray  # (n,)
    exponential: bool = False

    @property
    def value(self) -> float:
        """Return the value over all documents."""
        return math.exp(self._ratio) if self.exponential else self._ratio

    @property
    def _ratio(self) -> float:
        return float(self.totals.sum() / self.weights.sum())


def aggregation_of(leaf: Any, metric: str) -> Callable[..., float]:
    """Return lm-eval's function that aggregates a metric over documents."""
    found: Callable[..., float] = leaf.aggregation().get(metric, metrics.mean)
    return found


def are_averages(aggregations: Sequence[Callable[..., float]]) -> bool:
    """Whether a task, or the mean of several, is one average of all documents.

    A ratio in a group is not: how much a document counts there depends on the others.
    """
    if len(aggregations) == 1:
        return aggregations[0] in _KNOWN
    return all(aggregation is metrics.mean for aggregation in aggregations)


def average(aggregation: Callable[..., float], values: Sequence[Any]) -> Average | None:
    """Convert lm-eval's results per document of one task; None for other metrics."""
    if aggregation not in _KNOWN:
        return None
    array = np.array(values, np.float64)  # (n,), or (n, 2) for a ratio of sums
    if aggregation in _RATIOS:
        totals, weights = array.T
    else:
        totals, weights = array, np.ones(len(array))
    if aggregation is metrics.mean:
        return Average(totals, weights)
    if aggregation is metrics.bits_per_byte:
        return Average(-totals / math.log(2), weights)
    return Average(-totals, weights, exponential=True)
