"""From the result of a study to the values that its run folder keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mergekit_map.results.choosing import chosen_as
from mergekit_map.results.front import (
    UNKNOWN,
    Fit,
    Front,
    Merge,
    Reading,
    Readings,
    Task,
    recipe_name,
)
from mergekit_map.results.log import Evaluation, evaluation_key
from mergekit_map.results.surrogates import SurrogateRecord, Surrogates
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study, StudyResult

FloatArray = NDArray[np.float64]


def found_front(
    study: Study, result: StudyResult, log: Iterable[Evaluation], *, part: bool = False
) -> Front:
    """Assemble a front with its anchors, and the point that was chosen.

    The points of a ``part`` of a search have no recipes.
    """
    evaluations = list(log)
    points = _merges(study, result, result.front, evaluations)
    anchors = _merges(study, result, list(study.anchors.values()), evaluations)
    recipes = [None if part else recipe_name(index) for index in range(len(points))]
    front = Front(
        coefficients=dict(study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        order=result.order,
        tasks={task: _task(study, result, task) for task in study.tasks},
        surrogate=study.search.surrogate,
        selected=result.selected,
        points=tuple(
            point.model_copy(update={"recipe": recipe})
            for point, recipe in zip(points, recipes, strict=True)
        ),
        anchors=tuple(
            anchor.model_copy(update={"label": label})
            for anchor, label in zip(anchors, study.anchors, strict=True)
        ),
        merges=_other_merges(study, [*points, *anchors], evaluations),
        select=study.select,
        reason="",
        verdicts=(),
    )
    return chosen_as(front, result.selected, study.select)


def measured_point(study: Study, point: Merge, log: Iterable[Evaluation]) -> Merge:
    """Complete a merge with what the log has measured there."""
    readings = measured_at(study, point.coefficients, log)
    return point.model_copy(update={"measured": readings})


def measured_at(
    study: Study, coefficients: Mapping[str, float], log: Iterable[Evaluation]
) -> Readings:
    """Read what the log has measured of a merge."""
    seen = {e.key: e.reading for e in matching(study, log)}
    return {
        task: seen.get(evaluation_key(coefficients, task), UNKNOWN)
        for task in study.tasks
    }


def _task(study: Study, result: StudyResult, task: str) -> Task:
    metric, quality = study.tasks[task], result.surrogates[task].quality
    return Task(
        direction="maximize" if metric.higher_is_better else "minimize",
        range=(metric.lower, metric.upper),
        unit=metric.unit,
        fit=Fit.of(asdict(quality)),
    )


def _merges(
    study: Study,
    result: StudyResult,
    coefficients: Sequence[Mapping[str, float]],
    evaluations: Sequence[Evaluation],
) -> list[Merge]:
    X = np.array([study.vector(c) for c in coefficients])
    rows, inside = _surrogate_rows(study, result, X)
    predicted = {
        t: (s.predict(rows), s.stderr(rows)) for t, s in result.surrogates.items()
    }
    return [
        Merge(
            coefficients=dict(named),
            # Outside the sampled box a quadratic is a guess, and none is shown.
            predicted={
                task: Reading.of(value[row], stderr[row]) if inside[row] else UNKNOWN
                for task, (value, stderr) in predicted.items()
            },
            measured=measured_at(study, named, evaluations),
        )
        for row, named in enumerate(coefficients)
    ]


def _surrogate_rows(
    study: Study, result: StudyResult, X: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Say merges (k, d) in the coefficients of the surrogates.

    Returns them and which of them lie where surrogates were fitted.
    """
    if not result.groups:
        return X, np.all((study.box[:, 0] <= X) & (study.box[:, 1] >= X), axis=1)
    vectors = np.array([study.vector(group) for group in result.groups.values()])
    rows = X @ np.linalg.pinv(vectors)
    lower, upper = next(iter(result.surrogates.values())).bounds.T
    clipped = np.clip(rows, lower, upper)  # rounding may leave the box, or the plane
    return clipped, np.isclose(clipped @ vectors, X, rtol=0, atol=1e-9).all(axis=1)


def _other_merges(
    study: Study, shown: Iterable[Merge], evaluations: Iterable[Evaluation]
) -> tuple[Merge, ...]:
    known = {evaluation_key(merge.coefficients, "") for merge in shown}
    found: dict[Any, dict[str, Evaluation]] = {}
    for e in matching(study, evaluations):
        key = evaluation_key(e.coefficients, "")
        if key not in known:
            found.setdefault(key, {})[e.task] = e
    return tuple(
        Merge(
            coefficients=dict(next(iter(measured.values())).coefficients),
            measured={
                task: measured[task].reading if task in measured else UNKNOWN
                for task in study.tasks
            },
        )
        for measured in found.values()
    )


def fitted_surrogates(study: Study, result: StudyResult) -> Surrogates:
    """Write down the surrogates of a result."""
    return Surrogates(
        coefficients=tuple(result.groups or study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        tasks={t: SurrogateRecord.of(s) for t, s in result.surrogates.items()},
    )
