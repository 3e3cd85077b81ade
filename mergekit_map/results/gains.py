"""Gains of the chosen merge over the reference points.

Reference points are the base model, the uniform soup, and for each task the parent that
measured best on it. Amounts are positive where the chosen merge is better, in the
tasks' own units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from pydantic import JsonValue, TypeAdapter

from mergekit_map.results.front import UNKNOWN, Front, Merge, Reading
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.multiple_testing import compare
from mergekit_map.surrogates.arrays import finite
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SOUP

Verdict: TypeAlias = Literal["better", "worse", "noise"]
Source: TypeAlias = Literal["measured", "predicted"]
BEST_PARENT = "best parent"
_RIVALS = (BASE, SOUP, BEST_PARENT)


@dataclass(frozen=True)
class Improvement:
    """The improvement of the chosen merge over another one on a task."""

    other: str  # which one: its label
    reading: Reading  # of the other, as measured
    amount: float  # larger is better
    stderr: float | None  # of the amount: item by item where both answered the same
    verdict: Verdict  # of all comparisons of the table together

    @property
    def errors(self) -> float | None:
        """Return the amount in standard errors; None where these are unknown."""
        return self.amount / self.stderr if self.stderr else None


@dataclass(frozen=True)
class Rival:
    """A reference point, as a row of the comparison."""

    label: str  # base, soup or best parent
    tasks: Mapping[str, Improvement]  # those where both are known


@dataclass(frozen=True)
class Gains:
    """The chosen merge compared with base, soup and best parents."""

    readings: Mapping[str, Reading]  # of the chosen merge, by task
    sources: Mapping[str, Source]  # how each of them is known
    rivals: tuple[Rival, ...]
    kept: Mapping[str, float | None]  # share of the best parent's gain over the base

    def rival(self, label: str) -> Rival | None:
        """Return a row: base, soup or best parent."""
        return next((rival for rival in self.rivals if rival.label == label), None)

    def content(self) -> dict[str, JsonValue]:
        """Return the comparison as JSON content."""
        content: dict[str, JsonValue] = _FORM.dump_python(self, mode="json")
        return content

    def where(self, label: str, verdict: Verdict) -> list[str]:
        """List the tasks on which the chosen merge is better than a rival, or worse."""
        rival = self.rival(label)
        found = rival.tasks.items() if rival is not None else ()
        return [task for task, gained in found if gained.verdict == verdict]


_FORM = TypeAdapter(Gains)


def gains(front: Front) -> Gains:
    """Compare the chosen merge with base, soup and, on each task, its best parent.

    Predictions replace the measurements of a merge that was not measured.
    """
    merges = {
        (label, task): merge
        for label in _RIVALS
        for task in front.tasks
        if (merge := rival_of(front, label, task)) is not None
    }
    found = {
        place: difference
        for place, merge in merges.items()
        if (difference := _difference(front, merge, place[1])) is not None
    }
    verdicts = _verdicts(front, found)
    rows: dict[str, dict[str, Improvement]] = {label: {} for label, _ in merges}
    for (label, task), one in found.items():
        other, verdict = merges[label, task], verdicts[label, task]
        rows[label][task] = Improvement(
            other.label or "", other.measured[task], one.amount, one.stderr, verdict
        )
    known = {task: _known(front, task) for task in front.tasks}
    return Gains(
        readings={task: reading for task, (reading, _) in known.items()},
        sources={task: source for task, (_, source) in known.items()},
        rivals=tuple(Rival(label, tasks) for label, tasks in rows.items()),
        kept={task: _kept(front, task) for task in front.tasks},
    )


def best_single(front: Front, task: str) -> Merge | None:
    """Return the single model that measured best in the search."""
    metric, known = front.tasks[task].metric, []
    for anchor in front.anchors:
        value = anchor.measured[task].value
        if anchor.label not in NO_SINGLE_MODEL and value is not None:
            known.append((metric.utility(value), anchor))
    return max(known, key=lambda pair: pair[0])[1] if known else None


def rival_of(front: Front, label: str, task: str) -> Merge | None:
    """Return the merge of a row: base, soup or best parent."""
    return best_single(front, task) if label == BEST_PARENT else labelled(front, label)


def labelled(front: Front, label: str) -> Merge | None:
    """Return the reference point with a label."""
    return next((a for a in front.anchors if a.label == label), None)


def ahead_of(front: Front, rival: Merge, task: str) -> Reading:
    """Return the chosen merge minus a rival on a task; larger is better."""
    found = _difference(front, rival, task)
    return UNKNOWN if found is None else Reading.of(found.amount, found.stderr)


def apart(front: Front, rival: Merge, task: str) -> float:
    """Return the standard error of chosen minus rival, item by item; NaN if unknown."""
    known = front.differences.get(task)
    if known is None:
        return math.nan
    there = len(front.points) + front.anchors.index(rival)
    return float(known.between(np.array(front.selected), np.array(there)))


def _known(front: Front, task: str) -> tuple[Reading, Source]:
    chosen = front.chosen
    if chosen.is_measured(task):
        return chosen.measured[task], "measured"
    return chosen.readings("predicted").get(task, UNKNOWN), "predicted"


@dataclass(frozen=True)
class _Difference:
    value: float  # of the chosen merge
    other: float
    sign: float  # turns values into such that are larger where better
    stderr: float | None
    items: float  # that the standard error was estimated from

    @property
    def amount(self) -> float:
        return self.sign * (self.value - self.other)


def _difference(front: Front, rival: Merge, task: str) -> _Difference | None:
    reading, source = _known(front, task)
    other = rival.measured[task]
    if reading.value is None or other.value is None:
        return None
    known = front.differences.get(task)
    if rival.coefficients and rival.coefficients == front.chosen.coefficients:
        error, items = 0.0, math.inf  # it is that merge
    elif source == "measured":
        error, items = apart(front, rival, task), known.items if known else math.inf
        if math.isnan(error):
            error, items = _hypot(reading.stderr, other.stderr), math.inf
    else:
        # What its items would say is unknown: no less than those of any other merge.
        error = _hypot(reading.stderr, most_apart(front, rival, task))
        items = math.inf
    sign = front.tasks[task].metric.sign
    return _Difference(reading.value, other.value, sign, finite(error), items)


def most_apart(front: Front, rival: Merge, task: str) -> float:
    """Return the largest standard error of a measured merge minus a rival.

    Errors are independent where no items were compared; NaN where none is known.
    """
    if (known := front.differences.get(task)) is not None:
        there = len(front.points) + front.anchors.index(rival)
        compared = np.array(known.merges)
        row = known.between(np.full_like(compared, there), compared)
        if not np.isnan(row).all():
            return float(np.nanmax(row))
    stderr = rival.measured[task].stderr
    return math.sqrt(2) * (math.nan if stderr is None else stderr)


def _hypot(*errors: float | None) -> float:
    return math.hypot(*(math.nan if error is None else error for error in errors))


def _verdicts(
    front: Front, found: Mapping[tuple[str, str], _Difference]
) -> dict[tuple[str, str], Verdict]:
    """Test which differences exceed noise, all of them together."""
    shape = len(_RIVALS), len(front.tasks)
    own, other, error = (np.full(shape, np.nan) for _ in range(3))
    items = np.full(shape, np.inf)
    columns = list(front.tasks)
    places = {
        (label, task): (_RIVALS.index(label), columns.index(task))
        for label, task in found
    }
    for key, one in found.items():
        at = places[key]
        own[at], other[at] = one.sign * one.value, one.sign * one.other
        error[at] = math.nan if one.stderr is None else one.stderr
        items[at] = one.items
    differences = [front.differences.get(task) for task in front.tasks]
    answers = np.array([known is not None and known.answers for known in differences])
    ahead = compare(own, other, error, items, answers).better
    behind = compare(other, own, error, items, answers).better
    return {
        key: "better" if ahead[at] else "worse" if behind[at] else "noise"
        for key, at in places.items()
    }


def _kept(front: Front, task: str) -> float | None:
    """Return the share of the best parent's gain that is kept; None without one."""
    base, best = labelled(front, BASE), best_single(front, task)
    value = _known(front, task)[0].value
    if base is None or best is None or value is None:
        return None
    start, end = base.measured[task].value, best.measured[task].value
    metric = front.tasks[task].metric
    if start is None or end is None or metric.utility(end) <= metric.utility(start):
        return None
    return (value - start) / (end - start)


# Of a measurement and of a prediction, NaN where it is not known.
Errors: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Anchors:
    """Measured values of the reference points by label and task, in the tasks' units.

    ``errors`` are of another merge minus the value: the first of a measured merge, the
    second of a predicted one. Margins below 0 use the first, others the second.
    """

    values: Mapping[str, Mapping[str, float]]
    errors: Mapping[str, Mapping[str, Errors]] = field(default_factory=dict)


def measured_anchors(
    anchors: Mapping[str, Mapping[str, float]], evaluations: Iterable[Evaluation]
) -> Anchors:
    """Read the measurements of the reference points (label to coefficients).

    How the merges differ document by document is not known here: errors range from 0 to
    those of independent measurements.
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
    """Read the reference values of a front, with the errors of points minus them."""
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
