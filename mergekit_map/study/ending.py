"""How a search ends: its front is measured where it matters, fitted again, chosen from.

Every prediction of a point that is measured here stays on record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mergekit_map.results.choosing import measured_anchors, wished
from mergekit_map.results.log import Evaluation, Key, by_merge
from mergekit_map.search.arrays import FloatArray
from mergekit_map.search.dense import non_dominated
from mergekit_map.search.gain import choose_by_gain
from mergekit_map.search.surrogate import Surrogate
from mergekit_map.study.fitting import (
    chosen_of,
    fit_surrogates,
    predict_utilities,
    predicted_front,
)
from mergekit_map.study.planning import wanted_evaluations
from mergekit_map.study.refining import ending_of, n_quiet_rounds, n_spent
from mergekit_map.study.study import Candidate, Study, StudyResult

# Predictions that differ by less than this share of a task's range are the same.
_SAME = 1e-6

# Measure, with what predicts them, and give what may be fitted of it.
MeasureAll: TypeAlias = Callable[
    [Sequence[Candidate], Mapping[str, Surrogate]], list[Evaluation]
]


def end_search(
    study: Study,
    rounds: Sequence[Sequence[Candidate]],
    known: Sequence[Evaluation],
    measure_all: MeasureAll,
) -> StudyResult:
    """Measure points that show the front, then the one that is chosen; fit them all.

    A function of what is known and measured here, so that a search that is run again
    ends alike.

    Raises:
        DesignError: a surrogate cannot be fitted.
    """
    surrogates = fit_surrogates(study, known)

    def measure_rows(points: FloatArray) -> bool:
        """Measure, and fit again what is new; tell whether anything is."""
        nonlocal known, surrogates
        planned: list[Candidate] = [("front", study.named(row)) for row in points]
        before = {e.key: e for e in known}
        after = before | _usable(before, measure_all(planned, surrogates))
        new = any(before.get(key) is not e for key, e in after.items())
        if new:
            known = list(after.values())
            surrogates = fit_surrogates(study, known)
        return new

    anchors = measured_anchors(study.anchors, known)
    front = predicted_front(study, surrogates)
    if study.search.remeasure:
        # Known better by then, the choice at the end will be a better one.
        rows, selected = chosen_of(study, surrogates, front, anchors)
        changed = measure_rows(rows[[selected]])
        telling = front[_telling(study, surrogates, front, known)]
        if measure_rows(telling) or changed:
            front = predicted_front(study, surrogates)
    front = _with_measured(study, surrogates, front, known)
    for _ in range(1 + _more_choices(study)):
        rows, selected = chosen_of(study, surrogates, front, anchors)
        measure_rows(rows[[selected]])
        # A merge just within its limits may be outside them once it is fitted.
        utilities = predict_utilities(study, surrogates, rows[[selected]])
        if (utilities >= wished(study.select, study.tasks, anchors).lower).all():
            break
    if len(study.tasks) == 1:
        rows, selected = _best_measured(study, surrogates, known), 0
        measure_rows(rows)
    merges = [study.named(row) for row in rows]
    ending = None
    if study.search.refines:
        quiet = n_quiet_rounds(rounds, known)
        spent, allowed = n_spent(study, rounds, known), wanted_evaluations(study)
        ending = ending_of(study, surrogates, spent, allowed, quiet)
    return StudyResult(surrogates, merges, selected, ending=ending)


def _usable(
    before: Mapping[Key, Evaluation], measured: Iterable[Evaluation]
) -> dict[Key, Evaluation]:
    """Take the latest of each, but no failure in the place of a value."""
    return {e.key: e for e in measured if not (e.failed and e.key in before)}


def _best_measured(
    study: Study, surrogates: Mapping[str, Surrogate], known: Sequence[Evaluation]
) -> FloatArray:
    """Take the merge that is best by all that is known in the end; (1, d)."""
    X, Y = _measured(study, known)
    X = X[np.isfinite(Y).all(axis=1)]
    best = predict_utilities(study, surrogates, X)[:, 0].argmax()
    return np.asarray(X[[best]])


def _telling(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    known: Sequence[Evaluation],
) -> list[int]:
    """Choose the points to measure: those that add most to what is measured here."""
    Y = predict_utilities(study, surrogates, front)
    width = np.ptp(Y, axis=0)
    width = np.where(width > 0, width, 1.0)
    here = {e.key[0]: e.coefficients for e in known if e.role != "imported"}
    X = study.vectors(here.values())
    there = predict_utilities(study, surrogates, X[study.contains(X)])
    scaled = [(rows - Y.min(axis=0)) / width for rows in (Y, there)]
    count = study.search.remeasure - 1 - _more_choices(study)
    return choose_by_gain(scaled[0], scaled[1], count)


def _more_choices(study: Study) -> int:
    """Keep a measurement of the front for limits, which are met closely."""
    return int(study.select.require is not None and study.search.remeasure > 1)


def _with_measured(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    known: Sequence[Evaluation],
) -> FloatArray:
    """Add merges that survived measurement, in the order of a front; (k, d).

    They take the place of points that predict the same. With one task, one is best.
    """
    X, Y = _measured(study, known)
    first = np.isin(np.arange(len(Y)), np.unique(Y, axis=0, return_index=True)[1])
    survived = X[non_dominated(Y) & first]
    there, added, seen = (
        predict_utilities(study, surrogates, rows) for rows in (front, survived, X)
    )
    width = np.ptp(np.vstack([there, seen]), axis=0)
    apart = np.abs(there[:, None] - added) > _SAME * width
    both = np.vstack([front[apart.any(axis=2).all(axis=1)], survived])
    keys = np.hstack([predict_utilities(study, surrogates, both), both])[:, ::-1]
    ordered = both[np.lexsort(keys.T)]
    return np.asarray(ordered[-1:] if len(study.tasks) == 1 else ordered)


def _measured(
    study: Study, known: Sequence[Evaluation]
) -> tuple[FloatArray, FloatArray]:
    """List the merges of the box, and what was measured of them.

    Returns:
        (n, d) coefficients, (n, m) larger is better, NaN where there is none.
    """
    found = by_merge(e for e in known if not e.failed)
    X = study.vectors(next(iter(of.values())).coefficients for of in found.values())
    rows = [
        [
            metric.utility(of[task].value) if task in of else np.nan
            for task, metric in study.tasks.items()
        ]
        for of in found.values()
    ]
    inside = study.contains(X)
    return X[inside], np.array(rows, np.float64).reshape(len(X), -1)[inside]
