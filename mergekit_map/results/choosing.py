"""Which point of a front becomes the recipe: what the user asks for, on its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from mergekit_map.config.specs import SelectSpec, share_of
from mergekit_map.errors import ConfigError, DesignError, nearest
from mergekit_map.measurement import NO_SINGLE_MODEL, Metric
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.verdict_words import verdicts_in_words
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.selection import (
    nearest_to_limits,
    select_by_achievement,
    select_by_preference,
    select_knee,
)
from mergekit_map.words import listed

# Label of an anchor to task to what was measured there, in the task's own units.
AnchorValues = Mapping[str, Mapping[str, float]]

_SCALARIZATIONS = {"sum": select_by_preference, "achievement": select_by_achievement}


def choose_point(front: Front, select: SelectSpec) -> Front:
    """Choose a point of a front as asked.

    Raises:
        ConfigError: there is no such task, or a limit is a share that there is not.
        DesignError: there is no such point, or none within the limits.
    """
    for key, names in (("prefer", select.prefer), ("require", select.require)):
        for name in names or ():
            if name not in front.tasks:
                raise ConfigError(
                    f"{key}: there is no task {name!r}; {nearest(name, front.tasks)}"
                )
    predicted = front.utilities(front.points, "predicted")
    index = choose(select, front.metrics, predicted, _anchor_values(front))
    return chosen_as(front, index, select)


def chosen_as(front: Front, index: int, select: SelectSpec) -> Front:
    """Make a point the chosen one, with the reason, and judge the front anew."""
    chosen = front.model_copy(update={"selected": index, "select": select})
    return judged(chosen.model_copy(update={"reason": _reason(chosen)}))


def judged(front: Front) -> Front:
    """Renew the verdicts, as far as the numbers are known now."""
    return front.model_copy(update={"verdicts": verdicts_in_words(front)})


def choose(
    select: SelectSpec,
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    anchors: AnchorValues,
) -> int:
    """Choose a row of the front's utilities (k, m), a column per task, as asked.

    Raises:
        ConfigError: a limit is a share of a score that has no shares.
        DesignError: there is no such row, or none within the limits.
    """
    if select.index is not None:
        if select.index >= len(utilities):
            raise DesignError(
                f"the front has the points 0 to {len(utilities) - 1}, not "
                f"{select.index}; choose one of them, nothing is measured again"
            )
        return select.index
    limits = find_limits(select, tasks, anchors)
    lower = np.array(
        [m.utility(limits[t]) if t in limits else -np.inf for t, m in tasks.items()]
    )
    allowed = np.all(utilities >= lower, axis=1)
    if not allowed.any():
        raise DesignError(_out_of_reach(tasks, utilities, limits, lower))
    if select.knee:
        return select_knee(utilities, allowed)
    prefer = preference(select, tasks)
    weights = np.array([prefer.get(task, 0.0) for task in tasks])
    return _SCALARIZATIONS[select.scalarization](utilities, weights, allowed)


def preference(select: SelectSpec, tasks: Iterable[str]) -> Mapping[str, float]:
    """Weigh the tasks as asked; by default alike those without a limit, or else all."""
    names = list(tasks)
    free = [task for task in names if task not in (select.require or {})]
    return select.prefer or dict.fromkeys(free or names, 1.0)


def find_limits(
    select: SelectSpec, tasks: Mapping[str, Metric], anchors: AnchorValues
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


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> AnchorValues:
    """Read what was measured at the anchors (label to coefficients)."""
    seen = by_merge(e for e in evaluations if not e.failed)
    return {
        label: {task: e.value for task, e in seen.get(merge_key(c), {}).items()}
        for label, c in anchors.items()
    }


def _best_single_model(task: str, metric: Metric, anchors: AnchorValues) -> float:
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


def _out_of_reach(
    tasks: Mapping[str, Metric],
    utilities: FloatArray,
    limits: Mapping[str, float],
    lower: FloatArray,
) -> str:
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


def _anchor_values(front: Front) -> AnchorValues:
    return {
        anchor.label or "": {
            task: reading.value
            for task, reading in anchor.measured.items()
            if reading.value is not None
        }
        for anchor in front.anchors
    }


def _reason(front: Front) -> str:
    start, select = f"Point {front.selected} of {len(front.points)}", front.select
    if select.index is not None:
        return f"{start}, chosen by its index."
    how = "the knee of the front" if select.knee else _preferred(front)
    if select.require is None:
        return f"{start}, {how}."
    return f"{start}, {how} with {_kept_limits(front)}"


def _preferred(front: Front) -> str:
    select = front.select
    weights = preference(select, front.tasks)
    how = " (achievement)" if select.scalarization == "achievement" else ""
    if select.require and not select.prefer:
        alike = " alike" if len(weights) > 1 else ""
        return f"the best {listed(weights)}{alike}{how}"
    listing = ", ".join(f"{task}={weight:g}" for task, weight in weights.items())
    return f"chosen by the preference {listing}{how}"


def _kept_limits(front: Front) -> str:
    metrics, predicted = front.metrics, front.chosen.readings("predicted")
    kept, unsure = [], []
    limits = find_limits(front.select, metrics, _anchor_values(front))
    for task, limit in limits.items():
        share = share_of((front.select.require or {})[task])
        of = "" if share is None else f", {100 * share:g}% of the best single model"
        words, reading = limit_in_words(task, metrics[task], limit), predicted[task]
        kept.append(f"{words}{of} (predicted {reading})")
        if abs((reading.value or 0.0) - limit) < (reading.stderr or 0.0):
            unsure.append(task)
    text = f"{listed(kept)}."
    if unsure:
        verb = "keeps its limit" if len(unsure) == 1 else "keep their limits"
        text += f" {listed(unsure)} {verb} by less than one standard error."
    return text
