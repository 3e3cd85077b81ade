"""What was measured at the anchors: base, single models, and their soup."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from mergekit_map.results.front import Front
from mergekit_map.results.gained import most_apart
from mergekit_map.results.log import Evaluation, by_merge, merge_key

# Of a measurement and of a prediction, NaN where it is not known.
Errors: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Anchors:
    """What was measured, in the tasks' own units, by label of the anchor and task.

    ``errors`` are of another merge less the value: of what is measured of it, and of
    what is predicted; of them margins below 0 count the first, others the second.
    """

    values: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, Mapping[str, Errors]] = field(default_factory=dict)


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> Anchors:
    """Read what was measured at the anchors (label to coefficients).

    How much merges differ document by document is not known then: from nothing to as
    much as if they erred apart.
    """
    seen = by_merge(e for e in evaluations if not e.failed)
    found = {label: seen.get(merge_key(c), {}) for label, c in anchors.items()}
    return Anchors(
        {label: {t: e.value for t, e in of.items()} for label, of in found.items()},
        {
            label: {task: _unknown_to(e.stderr) for task, e in of.items()}
            for label, of in found.items()
        },
    )


def anchor_values(front: Front) -> Anchors:
    """Read them from a front, with the errors of its points less them."""
    points = front.stderrs(front.points, "predicted")
    typical = np.median(np.nan_to_num(points), axis=0)
    predicted = dict(zip(front.tasks, typical.tolist(), strict=True))
    values: dict[str, dict[str, float]] = {}
    errors: dict[str, dict[str, Errors]] = {}
    for anchor in front.anchors:
        values[label := anchor.label or ""], errors[label] = {}, {}
        for task, reading in anchor.measured.items():
            if reading.value is not None:
                apart = most_apart(front, anchor, task)
                values[label][task] = reading.value
                errors[label][task] = apart, math.hypot(apart, predicted[task])
    return Anchors(values, errors)


def _unknown_to(stderr: float | None) -> Errors:
    return (math.nan, math.nan) if stderr is None else (0.0, math.sqrt(2) * stderr)
