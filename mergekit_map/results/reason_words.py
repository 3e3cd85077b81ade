"""Why a point was chosen, and which limits it keeps, as sentences."""

from __future__ import annotations

import math

from mergekit_map.errors import ConfigError
from mergekit_map.results.anchor_values import anchor_values
from mergekit_map.results.front import Front
from mergekit_map.results.gain_words import margins_in_words
from mergekit_map.results.limits import (
    Limit,
    find_limits,
    how_to_relax,
    limit_in_words,
    lower_limits,
    required_limits,
    shortfalls,
)
from mergekit_map.search.selection import TIE
from mergekit_map.words import listed

# What a margin counts moves a little with the point that joins a front.
_SLACK = 0.99


def reason(front: Front) -> str:
    """Say in a sentence how the chosen point was chosen."""
    start, select = f"Point {front.selected} of {len(front.points)}", front.select
    if select.index is not None:
        return f"{start}, chosen by its index."
    if unmet := unmet_limits(front):
        return (
            f"{start}, the nearest to its limits that was found: it does not keep "
            f"{unmet}; {how_to_relax(select)}, or allow more evaluations."
        )
    how = "the knee of the front" if select.knee else _preferred(front)
    kept = "" if select.require is None else f" with {_kept_limits(front)}"
    rivals = "".join(f", {margins_in_words(front, label)}" for label in select.rivals)
    return f"{start}, {how}{kept}{rivals}.{_unsure(front)}"


def unmet_limits(front: Front) -> str:
    """Say by how much the chosen point misses its limits, as predicted; or nothing."""
    if not front.select.limited:
        return ""
    select = front.select
    if select.margin > 0:
        select = select.model_copy(update={"margin": _SLACK * select.margin})
    limits = find_limits(select, front.metrics, anchor_values(front))
    utilities = front.utilities([front.chosen], "predicted")
    lower = lower_limits(front.metrics, limits)
    if (utilities >= lower).all():
        return ""
    return listed(shortfalls(front.metrics, utilities[0], limits, lower))


def missed_as_measured(front: Front) -> list[str]:
    """Say which limits the chosen point was predicted to keep, but did not."""
    chosen, metrics = front.chosen, front.metrics
    if not front.select.limited or not chosen.is_measured(*metrics):
        return []
    # A margin above 0 is asked of predictions alone.
    select = front.select
    select = select.model_copy(update={"margin": min(select.margin, 0.0)})
    try:
        limits = find_limits(select, metrics, anchor_values(front))
    except ConfigError:  # chosen when shares were of something else
        return []
    missed = [
        f"{limit_in_words(task, metrics[task], limit)} (measured "
        f"{chosen.measured[task]}, {short:.2g} short)"
        for task, limit in limits.items()
        for short in [_short(front, task, limit)]
        if short > TIE * abs(limit.value)
    ]
    if not missed:
        return []
    return [
        f"As measured, point {front.selected} does not keep {listed(missed)}; ask for "
        "a little more than is needed, or choose another point."
    ]


def _short(front: Front, task: str, limit: Limit) -> float:
    metric, value = front.metrics[task], front.chosen.measured[task].value
    if value is None:
        return math.nan
    return metric.utility(limit.value) - metric.utility(value)


def _preferred(front: Front) -> str:
    select = front.select
    weights = select.preference(front.tasks)
    how = " (achievement)" if select.scalarization == "achievement" else ""
    if select.require and not select.prefer:
        alike = " alike" if len(weights) > 1 else ""
        return f"the best {listed(weights)}{alike}{how}"
    listing = ", ".join(f"{task}={weight:g}" for task, weight in weights.items())
    return f"chosen by the preference {listing}{how}"


def _kept_limits(front: Front) -> str:
    predicted = front.chosen.readings("predicted")
    limits = required_limits(front.select, front.metrics, anchor_values(front))
    return listed(
        f"{limit_in_words(task, front.metrics[task], limit)} (predicted "
        f"{predicted[task]})"
        for task, limit in limits.items()
    )


def _unsure(front: Front) -> str:
    """Say which limits are kept by less than the predictions are known to."""
    predicted = front.chosen.readings("predicted")
    limits = required_limits(front.select, front.metrics, anchor_values(front))
    unsure = [
        task
        for task, limit in limits.items()
        for reading in [predicted[task]]
        if abs((reading.value or 0.0) - limit.value) < (reading.stderr or 0.0)
    ]
    if not unsure:
        return ""
    verb = "keeps its limit" if len(unsure) == 1 else "keep their limits"
    return f" {listed(unsure)} {verb} by less than one standard error."
