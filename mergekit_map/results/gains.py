"""Gains of the chosen merge over the reference points.

Reference points are the base model, the uniform soup, and for each task the parent that
measured best on it. Amounts are positive where the chosen merge is better, in the
tasks' own units. With held-out documents, a gain is what these documents show.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from pydantic import JsonValue, TypeAdapter

from mergekit_map.results.front import UNKNOWN, Front, Merge, Reading, Readings
from mergekit_map.results.holdout import Amount, Gain
from mergekit_map.results.log import Evaluation, by_merge, merge_key
from mergekit_map.results.multiple_testing import compare
from mergekit_map.results.paired import Differences
from mergekit_map.surrogates.arrays import finite
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SOUP

Verdict: TypeAlias = Literal["better", "worse", "noise"]
Source: TypeAlias = Literal["held-out", "measured", "predicted"]
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

    def share(self, task: str, value: float) -> float | None:
        """Return the share of the best parent's gain over the base that a value has.

        None where the best parent is not better than the base.
        """
        rows = [self.rival(label) for label in (BASE, BEST_PARENT)]
        known = [row.tasks[task] for row in rows if row and task in row.tasks]
        if len(known) < len(rows) or known[0].amount <= known[1].amount:
            return None
        base, best = (one.reading.value or 0.0 for one in known)
        return (value - base) / (best - base)


_FORM = TypeAdapter(Gains)


def gains(front: Front, *, in_search: bool = False) -> Gains:
    """Compare the chosen merge with base, soup and, on each task, its best parent.

    Held-out documents count where it was measured on them, unless ``in_search``, and
    predictions where it was not measured at all.
    """
    known = {task: _known(front, task, in_search=in_search) for task in front.tasks}
    found = {
        (label, task): pair
        for label in _RIVALS
        for task, own in known.items()
        if (rival := rival_of(front, label, task)) is not None
        and (pair := _compared(front, rival, task, *own)) is not None
    }
    rows: dict[str, dict[str, Improvement]] = {}
    pairs = list(found.values())
    for (label, task), one, verdict in zip(found, pairs, _verdicts(pairs), strict=True):
        rows.setdefault(label, {})[task] = Improvement(
            one.label, one.reading, one.amount, finite(one.stderr), verdict
        )
    compared = Gains(
        readings={task: reading for task, (reading, _) in known.items()},
        sources={task: source for task, (_, source) in known.items()},
        rivals=tuple(Rival(label, tasks) for label, tasks in rows.items()),
        kept={},
    )
    kept = {
        task: None if reading.value is None else compared.share(task, reading.value)
        for task, reading in compared.readings.items()
    }
    return replace(compared, kept=kept)


def with_gains(front: Front) -> Front:
    """Record the gains on held-out documents, beside those of the search."""
    if (holdout := front.holdout) is None:
        return front
    found, before = gains(front), gains(front, in_search=True)
    compared, promises = [], []
    for label in (BASE, BEST_PARENT, SOUP):
        rival, earlier = found.rival(label), before.rival(label)
        for task, one in rival.tasks.items() if rival is not None else ():
            if found.sources[task] != "held-out" or one.stderr == 0:
                continue  # the chosen merge is the rival itself
            measured = earlier is not None and before.sources[task] == "measured"
            was = earlier.tasks.get(task) if earlier is not None and measured else None
            held = _Pair("", UNKNOWN, one.amount, one.amount, math.nan)
            if was is not None:
                apart = _independent(one.stderr, was.stderr)
                held = _Pair("", UNKNOWN, one.amount, was.amount, apart)
            promises.append(held)
            sign, merge = front.tasks[task].metric.sign, rival_of(front, label, task)
            compared.append(
                Gain(
                    task=task,
                    other=one.other,
                    held_out=Amount(value=sign * one.amount, stderr=one.stderr),
                    measured=None
                    if was is None
                    else Amount(value=sign * was.amount, stderr=was.stderr),
                    predicted=_predicted(front, merge, task),
                    verdict=one.verdict,
                )
            )
    kept = [
        None if math.isnan(promise.stderr) else verdict == "noise"
        for promise, verdict in zip(promises, _verdicts(promises), strict=True)
    ]
    checked = (
        gain.model_copy(update={"kept": yes})
        for gain, yes in zip(compared, kept, strict=True)
    )
    updated = holdout.model_copy(update={"gains": tuple(checked)})
    return front.model_copy(update={"holdout": updated})


def foretold(merge: Merge) -> Readings:
    """Return the prediction made before a merge was measured."""
    return merge.foretold or merge.readings("predicted")


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


def _known(front: Front, task: str, *, in_search: bool) -> tuple[Reading, Source]:
    """Return the value of the chosen merge on a task, and how it is known."""
    chosen = front.chosen
    if not in_search and (reading := _held_out(front, chosen, task)) is not None:
        return reading, "held-out"
    if chosen.is_measured(task):
        return chosen.measured[task], "measured"
    return chosen.readings("predicted").get(task, UNKNOWN), "predicted"


def _held_out(front: Front, merge: Merge, task: str) -> Reading | None:
    if (holdout := front.holdout) is None:
        return None
    place = holdout.place(merge.coefficients, merge.label)
    amount = None if place is None else holdout.merges[place].measured.get(task)
    return None if amount is None else Reading.of(amount.value, amount.stderr)


@dataclass(frozen=True)
class _Pair:
    """Values of the chosen merge and of another one; larger is better."""

    label: str
    reading: Reading  # of the other, in the task's own direction
    own: float
    other: float
    stderr: float  # of the difference; NaN where unknown
    items: float = math.inf  # that the standard error was estimated from
    answers: bool = False  # whether items are right or wrong answers

    @property
    def amount(self) -> float:
        return self.own - self.other


def _compared(
    front: Front, rival: Merge, task: str, own: Reading, source: Source
) -> _Pair | None:
    held_out = source == "held-out"
    other = _held_out(front, rival, task) if held_out else rival.measured[task]
    if own.value is None or other is None or other.value is None:
        return None
    utility = front.tasks[task].metric.utility
    values = rival.label or "", other, utility(own.value), utility(other.value)
    if rival.coefficients and rival.coefficients == front.chosen.coefficients:
        return _Pair(*values, 0.0)
    if source == "predicted":
        # What its items would say is unknown: no less than those of any other merge.
        return _Pair(*values, _independent(own.stderr, most_apart(front, rival, task)))
    stderr, known = _paired(front, rival, task, held_out=held_out)
    if math.isnan(stderr) or known is None:
        return _Pair(*values, _independent(own.stderr, other.stderr))
    return _Pair(*values, stderr, known.items, known.answers)


def _paired(
    front: Front, rival: Merge, task: str, *, held_out: bool
) -> tuple[float, Differences | None]:
    """Return the standard error of chosen minus rival on the same items, or NaN."""
    places: list[int | None]
    places = [front.selected, len(front.points) + front.anchors.index(rival)]
    differences = front.differences
    if held_out and (holdout := front.holdout) is not None:
        merges = (front.chosen, rival)
        places = [holdout.place(merge.coefficients, merge.label) for merge in merges]
        differences = holdout.differences
    if (known := differences.get(task)) is None:
        return math.nan, None
    one, other = (np.array(place) for place in places)
    return float(known.between(one, other)), known


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


def _predicted(front: Front, rival: Merge | None, task: str) -> Amount | None:
    known = rival.readings("predicted") if rival is not None else {}
    readings = foretold(front.chosen), known
    one, other = (some.get(task, UNKNOWN) for some in readings)
    if one.value is None or other.value is None:
        return None
    stderr = finite(_independent(one.stderr, other.stderr))
    return Amount(value=one.value - other.value, stderr=stderr)


def _independent(*errors: float | None) -> float:
    return math.hypot(*(math.nan if error is None else error for error in errors))


def _verdicts(pairs: Sequence[_Pair]) -> list[Verdict]:
    """Test which differences exceed noise, all of them together."""
    own, other, stderr, items, answers = (
        np.array([[getattr(pair, name) for pair in pairs]])
        for name in ("own", "other", "stderr", "items", "answers")
    )
    ahead = compare(own, other, stderr, items, answers[0]).better[0]
    behind = compare(other, own, stderr, items, answers[0]).better[0]
    return [
        "better" if better else "worse" if worse else "noise"
        for better, worse in zip(ahead, behind, strict=True)
    ]


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
