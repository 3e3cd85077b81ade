"""How a search ends: its front is measured where it matters, fitted again, chosen from.

Every prediction of a point that is measured here stays on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from mergekit_map.results.choosing import measured_anchors
from mergekit_map.results.log import Evaluation, by_merge
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
from mergekit_map.study.refining import ending_of
from mergekit_map.study.study import Candidate, Study, StudyResult

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

    def measure_rows(points: FloatArray) -> None:
        nonlocal known, surrogates
        planned: list[Candidate] = [("front", study.named(row)) for row in points]
        seen = {e.key for e in known}
        new = [e for e in measure_all(planned, surrogates) if e.key not in seen]
        if new:
            known = [*known, *{e.key: e for e in new}.values()]
            surrogates = fit_surrogates(study, known)

    front = predicted_front(study, surrogates)
    n_fitted = len(known)
    measure_rows(front[_telling(study, surrogates, front, known)])
    if len(known) > n_fitted:
        front = predicted_front(study, surrogates)
    front = _with_measured(study, surrogates, front, known)
    anchors = measured_anchors(study.anchors, known)
    front, selected = chosen_of(study, surrogates, front, anchors)
    measure_rows(front[[selected]])
    merges = [study.named(row) for row in front]
    ending = None
    if study.search.refines:
        allowed = wanted_evaluations(study)
        ending = ending_of(study, rounds, known, surrogates, allowed)
    return StudyResult(surrogates, merges, selected, ending=ending)


def _telling(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    known: Sequence[Evaluation],
) -> list[int]:
    """Choose the points to measure: those that add most to what is measured."""
    Y = predict_utilities(study, surrogates, front)
    width = np.ptp(Y, axis=0)
    width = np.where(width > 0, width, 1.0)
    X = study.vectors({e.key[0]: e.coefficients for e in known}.values())
    there = predict_utilities(study, surrogates, X[study.contains(X)])
    scaled = [(rows - Y.min(axis=0)) / width for rows in (Y, there)]
    return choose_by_gain(scaled[0], scaled[1], study.search.remeasure)


def _with_measured(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    known: Sequence[Evaluation],
) -> FloatArray:
    """Add merges that survived measurement, in the order of a front; (k, d)."""
    measured = by_merge(e for e in known if not e.failed)
    whole = [next(iter(found.values())) for found in measured.values()]
    X = study.vectors(e.coefficients for e in whole)
    rows = [
        [
            metric.utility(found[task].value) if task in found else np.nan
            for task, metric in study.tasks.items()
        ]
        for found in measured.values()
    ]
    survived = non_dominated(np.array(rows, np.float64).reshape(len(X), -1))
    fresh = [not (row == front).all(axis=1).any() for row in X]
    both = np.vstack([front, X[survived & study.contains(X) & np.array(fresh, bool)]])
    keys = np.hstack([predict_utilities(study, surrogates, both), both])[:, ::-1]
    return np.asarray(both[np.lexsort(keys.T)])
