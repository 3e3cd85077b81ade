"""What each item of a measurement does to its value, read from the records per item.

Merges that were measured on the same items can be compared item by item; see
``search/contrasts.py`` for what that gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from lm_eval.api import metrics

from mergekit_map.search.arrays import FloatArray
from mergekit_map.tasks.harness import HarnessTask
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.tasks.perplexity import PerplexityText

Samples: TypeAlias = Sequence[Mapping[str, Any]]
_Part: TypeAlias = tuple[float, FloatArray]  # a value, and influences (n,) on it


@dataclass(frozen=True, eq=False)
class Itemised:
    """A value, and what each item does to it."""

    value: float
    items: tuple[tuple[Hashable, ...], ...]  # what tells the items; the part first
    influences: FloatArray  # (n,) in the unit of the value


def itemise(task: LoadedTask, samples: Samples) -> Itemised | None:
    """Read the records of a measurement.

    None where they do not say what the value is: for a function of one's own, for a
    metric that is no mean, ratio of sums or exponential of one, for a part with fewer
    than two items, and for records of another form.
    """
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            match task:
                case PerplexityText():
                    found = _itemise_text(samples)
                case HarnessTask():
                    found = _itemise_harness(task, samples)
                case _:
                    return None
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None  # written by another version, or by hand
    if found is None or not np.isfinite([found.value, *found.influences]).all():
        return None
    return found


def _itemise_text(samples: Samples) -> Itemised | None:
    if len(samples) < 2:
        return None
    items = tuple(("", s["block"], s["tokens"]) for s in samples)
    weights = np.array([s["tokens"] for s in samples], np.float64)
    totals = np.array([s["loss"] for s in samples], np.float64) * weights
    value, influences = _ratio(totals, weights)
    return Itemised(value, items, influences)


def _itemise_harness(task: HarnessTask, samples: Samples) -> Itemised | None:
    metric = task.reading.partition(",")[0]
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        parts.setdefault(sample["task"], []).append(sample)
    read = [
        _read(_aggregation(task, leaf, metric), [sample[metric] for sample in found])
        for leaf, found in parts.items()
    ]
    known = [part for part in read if part is not None]
    if not known or len(known) < len(read):
        return None
    shares = _shares(task, metric, [len(found) for found in parts.values()])
    return Itemised(
        math.fsum(s * value for s, (value, _) in zip(shares, known, strict=True)),
        tuple(
            (leaf, sample["doc_id"], sample["doc_hash"])
            for leaf, found in parts.items()
            for sample in found
        ),
        np.concatenate([s * u for s, (_, u) in zip(shares, known, strict=True)]),
    )


def _aggregation(task: HarnessTask, leaf: str, metric: str) -> Callable[..., float]:
    found: Callable[..., float] = (
        task.loaded["tasks"][leaf].aggregation().get(metric, metrics.mean)
    )
    return found


def _shares(task: HarnessTask, metric: str, sizes: Sequence[int]) -> list[float]:
    """Weigh the parts of a group as its value does; a task by itself has one."""
    group = task.loaded["groups"].get(task.subject)
    if group is None:
        return [1.0]
    # The last entry of a metric is the one whose value lm-eval keeps.
    chosen = [c for c in group.aggregate_metric_list if c.metric == metric][-1]
    counts = sizes if chosen.weight_by_size else [1] * len(sizes)
    return [count / sum(counts) for count in counts]


def _read(aggregation: Any, values: Sequence[Any]) -> _Part | None:
    if len(values) < 2:
        return None
    array = np.array(values, np.float64)  # (n,), or (n, 2) for a ratio of sums
    if aggregation in (metrics.mean, metrics.perplexity):
        mean, influences = _ratio(array, np.ones(len(array)))
        if aggregation is metrics.mean:
            return mean, influences
        return math.exp(-mean), -math.exp(-mean) * influences
    if aggregation in (metrics.weighted_perplexity, metrics.bits_per_byte):
        ratio, influences = _ratio(*array.T)
        if aggregation is metrics.bits_per_byte:
            return -ratio / math.log(2), -influences / math.log(2)
        return math.exp(-ratio), -math.exp(-ratio) * influences
    return None


def _ratio(totals: FloatArray, weights: FloatArray) -> _Part:
    ratio = totals.sum() / weights.sum()
    influences: FloatArray = (totals - ratio * weights) / weights.sum()
    return float(ratio), influences
