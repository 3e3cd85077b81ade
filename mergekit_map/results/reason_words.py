"""Why a point was chosen, and which limits it keeps, as sentences."""

from __future__ import annotations

from mergekit_map.results.anchor_values import anchor_values
from mergekit_map.results.front import Front
from mergekit_map.results.gain_words import margins_in_words
from mergekit_map.results.limits import (
    find_limits,
    how_to_relax,
    limit_in_words,
    lower_limits,
    required_limits,
    shortfalls,
)
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
