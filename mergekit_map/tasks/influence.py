"""The influence of each item on the value of a measurement, from the records per item.

It allows merges that were measured on the same items to be compared item by item (see
``results/paired.py``).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.tasks.lm_eval_answers import of_answers, shares
from mergekit_map.tasks.lm_eval_tasks import HarnessTask
from mergekit_map.tasks.loading import LoadedTask
from mergekit_map.tasks.per_document import Average, aggregation_of, average
from mergekit_map.tasks.perplexity import PerplexityText
from mergekit_map.tasks.python_function import PythonFunction
from mergekit_map.types import Answers

Samples: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Itemised:
    """A value, and the influence of each item on it."""

    value: float
    items: tuple[tuple[Hashable, ...], ...]  # what tells the items; the part first
    influences: FloatArray  # (n,) in the unit of the value


def itemise(task: LoadedTask, samples: Samples) -> Itemised | None:
    """Read the records of a measurement.

    None where they do not define the value: for a user's function that returns one
    number, for a metric that is no mean, ratio of sums or exponential of one, for a
    part with fewer than two items, and for records of another form.
    """
    try:
        with np.errstate(divide="raise", invalid="raise", over="raise"):
            match task:
                case PerplexityText():
                    found = _itemise_text(samples)
                case HarnessTask():
                    found = _itemise_harness(task, samples)
                case PythonFunction():
                    found = _itemise_function(samples)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None  # written by another version, or by hand
    if found is None or not np.isfinite([found.value, *found.influences]).all():
        return None
    return found


def itemise_answers(answers: Answers) -> Itemised | None:
    """Read the scores that a value is a mean of; None for fewer than two, or NaN."""
    found = _itemised(of_answers(answers), tuple(("", i) for i in answers.ids))
    if found is None or not np.isfinite([found.value, *found.influences]).all():
        return None
    return found


def _itemise_text(samples: Samples) -> Itemised | None:
    weights = np.array([s["tokens"] for s in samples], np.float64)
    totals = np.array([s["loss"] for s in samples], np.float64) * weights
    items = tuple(("", s["block"], s["tokens"]) for s in samples)
    return _itemised(Average(totals, weights), items)


def _itemise_function(samples: Samples) -> Itemised | None:
    values = np.array([s["value"] for s in samples], np.float64)
    items = tuple(("", s["document"]) for s in samples)
    return _itemised(Average(values, np.ones(len(values))), items)


def _itemised(
    found: Average, items: tuple[tuple[Hashable, ...], ...]
) -> Itemised | None:
    if len(items) < 2:
        return None
    return Itemised(found.value, items, found.influences)


def _itemise_harness(task: HarnessTask, samples: Samples) -> Itemised | None:
    metric = task.metric_name
    parts: dict[str, list[Mapping[str, Any]]] = {}
    for sample in samples:
        parts.setdefault(sample["task"], []).append(sample)
    read = [
        average(
            aggregation_of(task.loaded["tasks"][leaf], metric),
            [sample[metric] for sample in found],
        )
        for leaf, found in parts.items()
        if len(found) > 1
    ]
    known = [part for part in read if part is not None]
    if not known or len(known) < len(parts):
        return None
    weighed = shares(task, [len(found) for found in parts.values()])
    pairs = list(zip(weighed, known, strict=True))
    return Itemised(
        math.fsum(share * part.value for share, part in pairs),
        tuple(
            (leaf, sample["doc_id"], sample["doc_hash"])
            for leaf, found in parts.items()
            for sample in found
        ),
        np.concatenate([share * part.influences for share, part in pairs]),
    )
