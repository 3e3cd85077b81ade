"""Who dominates whom, as sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mergekit_map.results.dominance import Ahead
from mergekit_map.results.front import Front, Merge
from mergekit_map.words import listed, number_in_words


def dominates_in_words(front: Front, found: Ahead) -> str:
    """Say that one merge dominates another."""
    one, other = name_of(front, found.merge), name_of(front, found.other)
    return f"As measured, {one} dominates {other}: {_better(front, found)}."


def nearly_in_words(front: Front, found: Ahead) -> str:
    """Say which merge comes nearest to dominating another, and how far that counts."""
    one, other = name_of(front, found.merge), name_of(front, found.other)
    return (
        f"No measured merge dominates {other} beyond doubt. Nearest to it is {one}: "
        f"{_better(front, found)}; among {found.comparisons} comparisons, chance alone "
        f"gives as much in up to {100 * found.chance:.2g} % of searches."
    )


def _better(front: Front, found: Ahead) -> str:
    texts = []
    for task, errors in found.tasks.items():
        metric = front.tasks[task].metric
        values = found.merge.measured[task], found.other.measured[task]
        text = f"{values[0]} against {values[1]} {metric.unit}".rstrip()
        lower = "" if metric.higher_is_better else ", lower is better"
        noise = "; standard errors unknown" if errors is None else ""
        by = f" by {_errors(errors)}" if errors is not None else ""
        texts.append(f"{task}{by} ({text}{lower}{noise})")
    rest = [f"better on {listed(texts)}"]
    if found.within:
        rest.append(f"within noise on {_others(front, found.within, found)}")
    if found.level:
        rest.append(f"level on {_others(front, found.level, found)}")
    return ", ".join(rest)


def _errors(errors: float) -> str:
    if math.isinf(errors):
        return "more than noise"
    return f"{errors:.{0 if errors >= 10 else 1}f} standard errors"


def _others(front: Front, tasks: Sequence[str], found: Ahead) -> str:
    """Name tasks; many of them, which are all others, are counted."""
    if len(tasks) < 3 or len(tasks) + len(found.tasks) < len(front.tasks):
        return listed(tasks)
    return f"the other {number_in_words(len(tasks))}"


def name_of(front: Front, merge: Merge) -> str:
    """Name a merge by its label, its point or its weights."""
    if merge.label is not None:
        return merge.label
    for index, point in enumerate(front.points):
        if point is merge:
            chosen = index == front.selected
            name = f"point {index}"
            return f"the chosen {name}" if chosen else f"{name} ({merge.weights})"
    return f"the merge with {merge.weights}"
