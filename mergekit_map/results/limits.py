"""Limits that a choice keeps: what is required, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mergekit_map.config.specs import SelectSpec, share_of
from mergekit_map.errors import ConfigError
from mergekit_map.measurement import NO_SINGLE_MODEL, Metric
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.selection import nearest_to_limits


def find_limits(
    select: SelectSpec,
    tasks: Mapping[str, Metric],
    anchors: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Turn what is required into limits in the tasks' own units.

    A share s of the best single model's measured score v is s * v where larger is
    better, and v / s where smaller is.

    Raises:
        ConfigError: a share is asked for of what is not above 0, or was not measured.
    """
    limits = {}
    for task, required in (select.require or {}).items():
        share = share_of(required)
        if share is None:
            limits[task] = float(required)
        elif tasks[task].higher_is_better:
            limits[task] = share * _best_single_model(task, tasks[task], anchors)
        else:
            limits[task] = _best_single_model(task, tasks[task], anchors) / share
    return limits


def limit_in_words(task: str, metric: Metric, limit: float) -> str:
    """Say a limit: ``math at least 0.65``, ``code at most 2.1 nats/token``."""
    word = "least" if metric.higher_is_better else "most"
    return f"{task} at {word} {limit:.4g} {metric.unit}".rstrip()


def lower_limits(
    tasks: Mapping[str, Metric], limits: Mapping[str, float]
) -> FloatArray:
    """Give the least utility of each task (m,), -inf where it has no limit."""
    return np.array(
        [m.utility(limits[t]) if t in limits else -np.inf for t, m in tasks.items()]
    )


def out_of_reach(
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    limits: Mapping[str, float],
    lower: FloatArray,
) -> str:
    """Say that no point of a front keeps the limits, and how near they come."""
    point = nearest_to_limits(utilities, lower)
    wanted = [limit_in_words(task, tasks[task], limits[task]) for task in limits]
    missed = []
    for column, (task, metric) in enumerate(tasks.items()):
        short = lower[column] - utilities[point, column]
        if short > 0:
            values = utilities[:, column] * metric.sign
            best = values[utilities[:, column].argmax()]
            missed.append(
                f"{task} is {values[point]:.4g}, {short:.2g} short (the best {task} of "
                f"the front is {best:.4g})"
            )
    return (
        f"no point of the front has {' and '.join(wanted)}; at point {point}, the "
        f"nearest, {' and '.join(missed)}; relax a limit, nothing is measured again"
    )


def shortfalls(
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    limits: Mapping[str, float],
    lower: FloatArray,
) -> list[str]:
    """Say which limits a point with these utilities (m,) misses, and by how much."""
    return [
        f"{limit_in_words(task, metric, limits[task])} (predicted "
        f"{utilities[column] * metric.sign:.4g}, "
        f"{lower[column] - utilities[column]:.2g} short)"
        for column, (task, metric) in enumerate(tasks.items())
        if lower[column] > utilities[column]
    ]


def _best_single_model(
    task: str, metric: Metric, anchors: Mapping[str, Mapping[str, float]]
) -> float:
    values = [
        readings[task]
        for label, readings in anchors.items()
        if label not in NO_SINGLE_MODEL and task in readings
    ]
    if not values:
        raise ConfigError(
            f"require: a share of the best single model on {task} was asked for, but "
            "none has been measured on it; give the limit as a number"
        )
    best = max(values, key=metric.utility)
    if best <= 0:
        raise ConfigError(
            f"require: a share of the best single model on {task} was asked for, but "
            f"its score is {best:.4g}, and only scores above 0 have shares; give the "
            "limit as a number"
        )
    return best
