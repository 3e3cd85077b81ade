"""A surrogate per task, fitted to what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mergekit_map.errors import DesignError
from mergekit_map.measurement import Metric
from mergekit_map.results.log import Evaluation
from mergekit_map.search.links import Link
from mergekit_map.search.nsga import compute_front
from mergekit_map.search.surrogate import Surrogate, fit_surrogate
from mergekit_map.study.study import Study

FloatArray = NDArray[np.float64]


def fit_surrogates(
    study: Study, evaluations: Iterable[Evaluation]
) -> dict[str, Surrogate]:
    """Fit a surrogate per task to all that was measured inside the box.

    Raises:
        DesignError: a task has too few measurements, or of merges too alike.
    """
    fitted = [e for e in evaluations if _is_inside(study, e) and not e.failed]
    surrogates = {}
    for task, metric in study.tasks.items():
        usable = [e for e in fitted if e.task == task]
        if not usable:
            raise DesignError(
                f"task {task!r} has no measurement to fit a surrogate to; see the "
                "errors in evaluations.jsonl"
            )
        try:
            surrogates[task] = fit_surrogate(
                np.array([study.vector(e.coefficients) for e in usable]),
                np.array([e.value for e in usable]),
                stderr=_standard_errors(usable),
                link=_link(metric),
                bounds=study.box,
                slopes=_slopes(study, usable),
                kind=study.search.surrogate,
            )
        except DesignError as error:
            raise DesignError(f"task {task!r}: {error}") from None
    return surrogates


def predict_utilities(
    study: Study, surrogates: Mapping[str, Surrogate], X: FloatArray
) -> FloatArray:
    """Predict all tasks at the rows of ``X`` (k, d), larger is better; (k, m)."""
    return np.column_stack(
        [
            surrogate.predict(X) * (1 if study.tasks[task].higher_is_better else -1)
            for task, surrogate in surrogates.items()
        ]
    )


def predicted_front(study: Study, surrogates: Mapping[str, Surrogate]) -> FloatArray:
    """Find the front of the surrogates inside the box; returns (k, d)."""
    return compute_front(
        lambda X: predict_utilities(study, surrogates, X),
        study.box,
        len(surrogates),
        seed=study.search.seed,
    )


def _slopes(study: Study, evaluations: Sequence[Evaluation]) -> FloatArray | None:
    """Read the derivatives by the coefficients: (n, d), NaN where there are none."""
    if not study.search.gradients:
        return None
    unknown = dict.fromkeys(study.bounds, math.nan)
    return np.array([study.vector(e.gradient or unknown) for e in evaluations])


def _is_inside(study: Study, evaluation: Evaluation) -> bool:
    vector = study.vector(evaluation.coefficients)
    return bool(np.all((study.box[:, 0] <= vector) & (vector <= study.box[:, 1])))


def _link(metric: Metric) -> Link:
    lower = -math.inf if metric.lower is None else metric.lower
    return Link(lower, math.inf if metric.upper is None else metric.upper)


def _standard_errors(evaluations: Sequence[Evaluation]) -> FloatArray | None:
    if any(e.stderr is None for e in evaluations):
        return None
    return np.array([e.stderr for e in evaluations], dtype=np.float64)
