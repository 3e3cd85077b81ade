"""Limits on the values of the chosen merge, as numbers and as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mergekit_map.config.schema import SelectSpec, share_of
from mergekit_map.errors import ConfigError, nearest
from mergekit_map.optimize.selection import nearest_to_limits
from mergekit_map.results.gains import Anchors
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import BASE, NO_SINGLE_MODEL, Metric


@dataclass(frozen=True)
class Limit:
    """The worst value of a task that is still allowed, in the task's own units."""

    value: float
    source: str = ""  # where it is from, if it was not given as a number


def find_limits(
    select: SelectSpec, tasks: Mapping[str, Metric], anchors: Anchors
) -> dict[str, Limit]:
    """Compute the limits that requirements set; of several on a task, the strictest.

    A share s is of the gain of the best single model over the base, as measured: the
    limit is (1 - s) * base + s * best, whatever direction and sign values have.

    Raises:
        ConfigError: a share is required where no single model is better than the
            base, or the measurements that define a limit are missing.
    """
    limits = required_limits(select, tasks, anchors)
    for task, limit in _limits_of_rivals(select, tasks, anchors):
        utility = tasks[task].utility
        if task not in limits or utility(limits[task].value) < utility(limit.value):
            limits[task] = limit
    return limits


def required_limits(
    select: SelectSpec, tasks: Mapping[str, Metric], anchors: Anchors
) -> dict[str, Limit]:
    """Return the limits of single tasks; errors as for ``find_limits``."""
    limits = {}
    for task, required in (select.require or {}).items():
        share = share_of(required)
        if share is None:
            limits[task] = _possible(task, tasks[task], float(required))
        else:
            base, best = _gain(task, tasks[task], anchors)
            source = (
                f"{100 * share:g}% of the best single model's gain over the base, from "
                f"{base:.4g} to {best:.4g}"
            )
            limits[task] = Limit((1 - share) * base + share * best, source)
    return limits


def _possible(task: str, metric: Metric, value: float) -> Limit:
    """Return a limit within the range of its metric."""
    best = metric.bounds[metric.higher_is_better]
    if metric.utility(value) <= metric.utility(best):
        return Limit(value)
    word = "most" if metric.higher_is_better else "least"
    message = f"require: {task} is {best:g} at {word}, so that nothing keeps {value:g}"
    if value > 0:
        share = "share of the best single model's gain over the base"
        message += f"; for a {share} write {task}={value:g}%"
    raise ConfigError(message)


def limit_in_words(task: str, metric: Metric, limit: Limit) -> str:
    """Write a limit: ``math at least 0.65``, ``length at most 120 tokens``."""
    word = "least" if metric.higher_is_better else "most"
    value = f"{limit.value:.4g} {metric.unit}".rstrip()
    more = filter(None, (metric.in_other_words(limit.value), limit.source))
    return f"{task} at {word} {', '.join([value, *more])}"


def lower_limits(
    tasks: Mapping[str, Metric], limits: Mapping[str, Limit]
) -> FloatArray:
    """Return the least utility of each task (m,), -inf where it has no limit."""
    return np.array(
        [
            m.utility(limits[t].value) if t in limits else -np.inf
            for t, m in tasks.items()
        ]
    )


def out_of_reach(
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    limits: Mapping[str, Limit],
    lower: FloatArray,
    way_out: str,
) -> str:
    """Describe the limits that no point of a front keeps, and how near they come."""
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
        f"nearest, {' and '.join(missed)}; {way_out}, nothing is measured again"
    )


def how_to_relax(select: SelectSpec) -> str:
    """Describe how to relax limits that no merge keeps."""
    if select.rivals and select.margin >= 0:
        return "relax a limit, or allow for noise with a margin of -1"
    return "relax a limit"


def shortfalls(
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    limits: Mapping[str, Limit],
    lower: FloatArray,
) -> list[str]:
    """Describe by how much a point with these utilities (m,) misses limits."""
    return [
        f"{limit_in_words(task, metric, limits[task])} (predicted "
        f"{utilities[column] * metric.sign:.4g}, "
        f"{lower[column] - utilities[column]:.2g} short)"
        for column, (task, metric) in enumerate(tasks.items())
        if lower[column] > utilities[column]
    ]


def _limits_of_rivals(
    select: SelectSpec, tasks: Mapping[str, Metric], anchors: Anchors
) -> Iterator[tuple[str, Limit]]:
    for rival in select.rivals:
        if rival not in anchors.values:
            raise ConfigError(
                f"not_worse_than: there is no {rival!r} to compare with; "
                + nearest(rival, anchors.values)
            )
        for task, metric in tasks.items():
            if task not in anchors.values[rival]:
                raise ConfigError(
                    f"not_worse_than: {rival} was not measured on {task}; give limits "
                    "as numbers"
                )
            value, source = anchors.values[rival][task], f"what {rival} has"
            if margin := select.margin:
                value += metric.sign * margin * _error(rival, task, anchors, margin)
                source += f", {margin:+g} standard errors"
            yield task, Limit(value, source)


def _error(rival: str, task: str, anchors: Anchors, margin: float) -> float:
    """Return the standard error that a margin multiplies."""
    measured, predicted = anchors.errors[rival][task]
    if math.isnan(measured):
        raise ConfigError(
            f"margin: the standard error on {task} is not known, so that nothing can "
            "be counted in it; leave the margin out"
        )
    return predicted if margin > 0 else measured


def _gain(task: str, metric: Metric, anchors: Anchors) -> tuple[float, float]:
    """Return the values of the base and of the best single model, which is better."""
    start = f"require: a share of the best single model's gain on {task} was asked for"
    instead = "give the limit as a number, or not-worse-than"
    values = [
        readings[task]
        for label, readings in anchors.values.items()
        if label not in NO_SINGLE_MODEL and task in readings
    ]
    if not values:
        raise ConfigError(f"{start}, but none has been measured on it; {instead}")
    if task not in anchors.values.get(BASE, {}):
        raise ConfigError(f"{start}, but no base was measured on it; {instead}")
    base, best = anchors.values[BASE][task], max(values, key=metric.utility)
    if metric.utility(best) <= metric.utility(base):
        raise ConfigError(
            f"{start}, but no single model is better than the base there (base "
            f"{base:.4g}, best single model {best:.4g}): there is no gain to keep a "
            f"share of; {instead}"
        )
    return base, best
