"""The gains of the chosen merge, checked on held-out documents.

Notation: ``r`` merges that the chosen one is compared with, ``m`` tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mergekit_map.results.diagnostics import foretold
from mergekit_map.results.front import Front, Merge, Reading, Readings
from mergekit_map.results.gains import BEST_PARENT, apart, rival_of
from mergekit_map.results.holdout import Amount, Gain, HoldoutEvaluation
from mergekit_map.results.multiple_testing import compare
from mergekit_map.surrogates.arrays import BoolArray, FloatArray, finite
from mergekit_map.types import BASE, SOUP


def with_gains(front: Front) -> Front:
    """Compare the chosen point with others on held-out documents."""
    holdout = front.holdout
    if holdout is None:
        return front
    rivals = {
        (row, task): rival
        for row, label in enumerate((BASE, BEST_PARENT, SOUP))
        for task in front.tasks
        if (rival := rival_of(front, label, task)) is not None
    }
    found = {
        place: pair
        for place, rival in rivals.items()
        if (pair := _pair(front, holdout, rival, place[1])) is not None
    }
    better, worse, off = _judge(front, holdout, found)
    columns = {task: column for column, task in enumerate(front.tasks)}
    gains = []
    for (row, task), pair in found.items():
        at = row, columns[task]
        verdict: Literal["better", "worse", "noise"] = "noise"
        if better[at] or worse[at]:
            verdict = "better" if better[at] else "worse"
        gains.append(pair.gain(task, verdict, kept=not off[at]))
    return front.model_copy(
        update={"holdout": holdout.model_copy(update={"gains": tuple(gains)})}
    )


@dataclass(frozen=True)
class _Pair:
    """The chosen merge and another one, on one task."""

    other: str
    held_out: tuple[float, float]  # values
    stderr: float | None  # of their difference
    measured: Amount | None
    predicted: Amount | None

    def gain(
        self, task: str, verdict: Literal["better", "worse", "noise"], *, kept: bool
    ) -> Gain:
        checked = self.measured is not None and None not in (
            self.stderr,
            self.measured.stderr,
        )
        return Gain(
            task=task,
            other=self.other,
            held_out=Amount(value=self.difference, stderr=self.stderr),
            measured=self.measured,
            predicted=self.predicted,
            verdict=verdict,
            kept=kept if checked else None,
        )

    @property
    def difference(self) -> float:
        return self.held_out[0] - self.held_out[1]


def _pair(
    front: Front, holdout: HoldoutEvaluation, rival: Merge, task: str
) -> _Pair | None:
    chosen = front.chosen
    places = [holdout.place(merge.coefficients) for merge in (chosen, rival)]
    one, other = places
    if one is None or other is None or one == other:
        return None
    values = [holdout.merges[place].measured.get(task) for place in (one, other)]
    if values[0] is None or values[1] is None:
        return None
    apart = math.nan
    if (known := holdout.differences.get(task)) is not None:
        apart = float(known.array(len(holdout.merges))[one, other])
    errors = values[0].stderr, values[1].stderr
    return _Pair(
        rival.label or "",
        (values[0].value, values[1].value),
        _stderr(apart, *errors),
        _measured(front, rival, task),
        _amount(foretold(chosen), rival.readings("predicted"), task),
    )


def _measured(front: Front, rival: Merge, task: str) -> Amount | None:
    """Return the difference as the search measured it."""
    error = apart(front, rival, task)
    return _amount(front.chosen.measured, rival.measured, task, error)


def _amount(
    ones: Readings, others: Readings, task: str, apart: float = math.nan
) -> Amount | None:
    one, other = (readings.get(task, _UNKNOWN) for readings in (ones, others))
    if one.value is None or other.value is None:
        return None
    error = _stderr(apart, one.stderr, other.stderr)
    return Amount(value=one.value - other.value, stderr=error)


_UNKNOWN = Reading(value=None, stderr=None)


def _stderr(apart: float, one: float | None, other: float | None) -> float | None:
    """Return the standard error of a difference, independent errors where unknown."""
    if math.isnan(apart) and one is not None and other is not None:
        apart = math.hypot(one, other)
    return finite(apart)


def _judge(
    front: Front, holdout: HoldoutEvaluation, found: Mapping[tuple[int, str], _Pair]
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Test which differences, and which broken promises, exceed noise; (r, m) each."""
    shape = 3, len(front.tasks)
    own, others, error, promised, both = (np.full(shape, np.nan) for _ in range(5))
    columns = {task: column for column, task in enumerate(front.tasks)}
    for (row, task), pair in found.items():
        at, sign = (row, columns[task]), front.tasks[task].metric.sign
        own[at], others[at] = sign * pair.held_out[0], sign * pair.held_out[1]
        error[at] = math.nan if pair.stderr is None else pair.stderr
        if pair.measured is not None and pair.measured.stderr is not None:
            promised[at] = sign * pair.measured.value
            both[at] = math.hypot(error[at], pair.measured.stderr)
    known = [holdout.differences.get(task) for task in front.tasks]
    items = np.array([np.inf if one is None else one.items for one in known])
    answers = np.array([one is not None and one.answers for one in known])
    better = _better(own, others, error, items, answers)
    worse = _better(others, own, error, items, answers)
    promised[np.isnan(both)] = np.nan
    amounts, gained = np.zeros_like(answers), own - others
    off = _better(promised, gained, both, items, amounts)
    off |= _better(gained, promised, both, items, amounts)
    return better, worse, off


def _better(
    one: FloatArray,
    other: FloatArray,
    stderr: FloatArray,
    items: FloatArray,
    answers: BoolArray,
) -> BoolArray:
    every = np.broadcast_to(items, one.shape)
    return compare(one, other, stderr, every, answers).better
