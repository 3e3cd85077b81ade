"""From the result of a study to the values that its run folder keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
from scipy.stats import qmc

from mergekit_map.results.choosing import chosen_as
from mergekit_map.results.front import UNKNOWN, Front, Merge, Readings, recipe_name
from mergekit_map.results.log import Evaluation, MergeKey, by_merge, merge_key
from mergekit_map.results.measured_task import Task
from mergekit_map.results.quality import Border, Fit
from mergekit_map.results.surrogates import SurrogateRecord, Surrogates, locate, predict
from mergekit_map.search.arrays import from_unit
from mergekit_map.search.dense import non_dominated
from mergekit_map.study.border import find_border
from mergekit_map.study.measuring import matching
from mergekit_map.study.study import Study, StudyResult

_N_SAMPLES = 256  # of the box
_ROUNDING = 1e-9  # share of its values by which a constant task varies


def found_front(
    study: Study, result: StudyResult, log: Iterable[Evaluation], *, part: bool = False
) -> Front:
    """Assemble a front with its anchors, and the point that was chosen.

    The points of a ``part`` of a search have no recipes.
    """
    seen = _seen(study, log)
    whole = {key: _whole(found) for key, found in seen.items()}
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
        recommended=_recommended(study, points, whole),
        ending=result.ending,
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
                coefficients=dict(next(iter(found.values())).coefficients),
                measured=_readings(study, found),
                foretold=_foretold(study, found),
            )
            for key, found in seen.items()
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
    found = _seen(study, log).get(merge_key(coefficients), {})
    return _readings(study, _whole(found))


def _seen(
    study: Study, log: Iterable[Evaluation]
) -> dict[MergeKey, dict[str, Evaluation]]:
    """Gather the latest of each task: no subset after all, no failure after a value."""
    found = matching(study, log)
    evaluations = sorted(found, key=lambda e: (not e.failed, e.whole))
    return by_merge(evaluations)


def _whole(found: Mapping[str, Evaluation]) -> dict[str, Evaluation]:
    """Leave out tasks of which only some documents were measured."""
    return {task: e for task, e in found.items() if e.whole}


def _readings(study: Study, measured: Mapping[str, Evaluation]) -> Readings:
    return {t: measured[t].reading if t in measured else UNKNOWN for t in study.tasks}


def _foretold(study: Study, measured: Mapping[str, Evaluation]) -> Readings | None:
    known = {t: e.foretold for t, e in measured.items() if e.foretold is not None}
    return {t: known.get(t, UNKNOWN) for t in study.tasks} if known else None


def _task(study: Study, result: StudyResult, task: str) -> Task:
    metric, quality = study.tasks[task], result.surrogates[task].quality
    return Task(
        direction="maximize" if metric.higher_is_better else "minimize",
        range=(metric.lower, metric.upper),
        unit=metric.unit,
        fit=Fit.of({**asdict(quality), **_expected(study, result, task)}),
        engine=study.engines.get(task),
    )


def _expected(study: Study, result: StudyResult, task: str) -> dict[str, float]:
    """Say how good predictions are by their own standard errors."""
    surrogate = result.surrogates[task]
    box = surrogate.bounds
    sobol = qmc.Sobol(len(box), scramble=False).random(_N_SAMPLES)
    places = from_unit(np.asarray(sobol), box)
    front = locate(result.front, study.bounds, result.groups, box)
    front = front[np.isfinite(front).all(axis=1)]
    error, seen = surrogate.stderr(places), surrogate.predict(places)
    unknown, level = (error**2).mean(), _ROUNDING * np.abs(seen).max()
    near, width = surrogate.stderr(front), np.ptp(surrogate.predict(front))
    share = unknown / (seen.var() + unknown) if np.ptp(seen) > level else 0.0
    return {
        "expected_r2": 1 - share,
        "front_error": (
            np.sqrt((near**2).mean()) / width if width > level else math.nan
        ),
    }


def _recommended(
    study: Study,
    points: Sequence[Merge],
    seen: Mapping[MergeKey, Mapping[str, Evaluation]],
) -> tuple[int, ...]:
    """List the measured points that no measured merge dominates."""
    keys = list(seen)
    values = [study.utilities(measured) for measured in seen.values()]
    Y = np.array(values, np.float64).reshape(len(keys), len(study.tasks))
    best = {key for key, yes in zip(keys, non_dominated(Y), strict=True) if yes}
    return tuple(i for i, p in enumerate(points) if merge_key(p.coefficients) in best)


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
            measured=_readings(study, _whole(found)),
            foretold=_foretold(study, found),
        )
        for merge, predicted in zip(
            coefficients, predict(result.surrogates, X), strict=True
        )
        for found in [seen.get(merge_key(merge), {})]
    ]


def fitted_surrogates(study: Study, result: StudyResult) -> Surrogates:
    """Write down the surrogates of a result."""
    return Surrogates(
        coefficients=tuple(result.groups or study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        tasks={t: SurrogateRecord.of(s) for t, s in result.surrogates.items()},
    )
