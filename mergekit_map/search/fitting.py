"""Surrogates, one per task, fitted to the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

import numpy as np

from mergekit_map.optimize.nsga3 import compute_front
from mergekit_map.optimize.scalarization import best_merge
from mergekit_map.results.gains import Anchors
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation
from mergekit_map.results.selection import choose
from mergekit_map.results.surrogates import fit_all, locate
from mergekit_map.search.study import Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogate


def fit_surrogates(
    study: Study, evaluations: Iterable[Evaluation]
) -> dict[str, Surrogate]:
    """Fit a surrogate per task to all measurements within the bounds.

    Raises:
        DesignError: a task has too few measurements, or of merges too alike.
    """
    usable = [e for e in evaluations if not e.failed]
    X = locate((e.coefficients for e in usable), study.bounds, {}, study.box)
    return fit_all(study.tasks, study.box, study.search.surrogate, X, usable)


def predict_utilities(
    study: Study, surrogates: Mapping[str, Surrogate], X: FloatArray
) -> FloatArray:
    """Predict all tasks at the rows of ``X`` (k, d), larger is better; (k, m)."""
    signs = [study.tasks[task].sign for task in surrogates]
    return np.column_stack([s.predict(X) for s in surrogates.values()]) * signs


def standard_errors(surrogates: Mapping[str, Surrogate], X: FloatArray) -> FloatArray:
    """Return standard errors of predictions at X (k, d), 0 if unknown; (k, m)."""
    return np.nan_to_num(np.column_stack([s.stderr(X) for s in surrogates.values()]))


def predicted_front(study: Study, surrogates: Mapping[str, Surrogate]) -> FloatArray:
    """Return the front of the surrogates within the bounds; (k, d)."""
    predict = partial(predict_utilities, study, surrogates)
    return compute_front(predict, study.box, len(surrogates), seed=study.search.seed)


def chosen_of(
    study: Study,
    surrogates: Mapping[str, Surrogate],
    front: FloatArray,
    anchors: Anchors,
) -> tuple[FloatArray, int]:
    """Choose from a front (k, d) by predictions, as the study requires.

    A merge that is predicted to be better than all points becomes a further row. If
    none keeps the limits, the nearest is chosen. Returns the rows and the index of the
    chosen one.

    Raises:
        ConfigError: a limit cannot be computed from the measurements.
        DesignError: there is no such row.
    """
    predict = partial(predict_utilities, study, surrogates)
    request = Request(study.select, study.tasks, anchors)
    if study.select.index is None:
        better = best_merge(predict, study.box, front, request.wish())
        if better is not None:
            return np.vstack([front, better]), len(front)
    return front, choose(request, predict(front))
