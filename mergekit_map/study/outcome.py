"""From the result of a study to the values that its run folder keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from mergekit_map.results.choosing import chosen_as
from mergekit_map.results.front import (
    UNKNOWN,
    Border,
    Fit,
    Front,
    Merge,
    Readings,
    Task,
    recipe_name,
)
from mergekit_map.results.log import Evaluation, MergeKey, by_merge, merge_key
from mergekit_map.results.surrogates import SurrogateRecord, Surrogates, locate, predict
from mergekit_map.study.border import find_border
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study, StudyResult


def found_front(
    study: Study, result: StudyResult, log: Iterable[Evaluation], *, part: bool = False
) -> Front:
    """Assemble a front with its anchors, and the point that was chosen.

    The points of a ``part`` of a search have no recipes.
    """
    seen = by_merge(matching(study, log))
    points = _merges(study, result, result.front, seen)
    anchors = _merges(study, result, list(study.anchors.values()), seen)
    shown = {merge_key(merge.coefficients) for merge in (*points, *anchors)}
    front = Front(
        coefficients=dict(study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        order=result.order,
        tasks={task: _task(study, result, task) for task in study.tasks},
        surrogate=study.search.surrogate,
        selected=result.selected,
        points=tuple(
            point if part else point.model_copy(update={"recipe": recipe_name(index)})
            for index, point in enumerate(points)
        ),
        anchors=tuple(
            anchor.model_copy(update={"label": label})
            for anchor, label in zip(anchors, study.anchors, strict=True)
        ),
        merges=tuple(
            Merge(
                coefficients=dict(next(iter(measured.values())).coefficients),
                measured=_readings(study, measured),
            )
            for key, measured in seen.items()
            if key not in shown
        ),
        border=_border(study, result),
        select=study.select,
        reason="",
        verdicts=(),
    )
    return chosen_as(front, result.selected, study.select)


def _border(study: Study, result: StudyResult) -> tuple[Border, ...]:
    bounds = next(iter(result.surrogates.values())).bounds
    X, anchors = (
        locate(merges, study.bounds, result.groups, bounds)
        for merges in (result.front, study.anchors.values())
    )
    names = tuple(result.groups or study.bounds)
    return tuple(find_border(result.surrogates, study.tasks, names, X, anchors))


def measured_at(
    study: Study, coefficients: Mapping[str, float], log: Iterable[Evaluation]
) -> Readings:
    """Read what the log has measured of a merge."""
    seen = by_merge(matching(study, log))
    return _readings(study, seen.get(merge_key(coefficients), {}))


def _readings(study: Study, measured: Mapping[str, Evaluation]) -> Readings:
    return {t: measured[t].reading if t in measured else UNKNOWN for t in study.tasks}


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
    seen: Mapping[MergeKey, Mapping[str, Evaluation]],
) -> list[Merge]:
    bounds = next(iter(result.surrogates.values())).bounds
    X = locate(coefficients, study.bounds, result.groups, bounds)
    return [
        Merge(
            coefficients=dict(merge),
            predicted=predicted,
            measured=_readings(study, seen.get(merge_key(merge), {})),
        )
        for merge, predicted in zip(
            coefficients, predict(result.surrogates, X), strict=True
        )
    ]


def fitted_surrogates(study: Study, result: StudyResult) -> Surrogates:
    """Write down the surrogates of a result."""
    return Surrogates(
        coefficients=tuple(result.groups or study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        tasks={t: SurrogateRecord.of(s) for t, s in result.surrogates.items()},
    )
