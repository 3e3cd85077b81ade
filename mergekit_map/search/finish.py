"""The end of a search: measure points of its front, fit again, choose, and write.

Predictions for the points measured here are stored. The result of a study is converted
to the values that its run folder stores.

The partial front of a running or stopped search is computed from the log, and is the
same whether the search was stopped, was killed or is running. The search never reads
it, so that its course does not depend on it, and replaces it when it is finished.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.optimize.design import fixed_sobol
from mergekit_map.optimize.front_filling import improvements, non_dominated
from mergekit_map.optimize.scalarization import varying_range
from mergekit_map.results.front import (
    UNKNOWN,
    Fit,
    Front,
    Merge,
    Readings,
    Task,
    Unfinished,
)
from mergekit_map.results.limits import Anchors, Request
from mergekit_map.results.log import Evaluation, MergeKey, by_merge, merge_key, read_log
from mergekit_map.results.run_folder import RunFolder, SearchPlan
from mergekit_map.results.samples import with_differences
from mergekit_map.results.selection import choose, chosen_as, with_recommended
from mergekit_map.results.surrogates import predict
from mergekit_map.search.measure import (
    fittable,
    measured_at,
    reference_values,
    run_digests,
)
from mergekit_map.search.planning import LEAST_RANGE, find_border, is_beside_measured
from mergekit_map.search.study import Candidate, Study, StudyResult
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.fit import Surrogates
from mergekit_map.utils.files import plain

# Predictions that differ by less than this share of a task's range are the same.
_SAME = 1e-6
_ROUNDING = 1e-9  # share of its values by which a constant task varies
# Measure merges, with their predictions, and return what may be fitted.
MeasureAll: TypeAlias = Callable[[Sequence[Candidate], Surrogates], list[Evaluation]]


def end_search(
    study: Study,
    known: Sequence[Evaluation],
    anchors: Anchors,
    measure_all: MeasureAll,
    surrogates: Surrogates | None = None,
    others: Callable[[], list[Evaluation]] = list,
) -> StudyResult:
    """Measure points that show the front, then the chosen one; fit them all.

    ``anchors`` has the values of the reference points; ``surrogates`` may pass those
    that were fitted to ``known``. Predictions are those of a fit that has ``others``,
    too: what earlier searches measured for other choices or budgets.
    """
    end = _End(study, anchors, measure_all, [*known], surrogates or study.fit(known))
    rows, selected = end.choose(end.shown_front())
    end.take(others())
    if len(study.tasks) == 1:
        rows, selected = end.best_measured(rows[[selected]]), 0
    return StudyResult(end.surrogates, [study.rounded(row) for row in rows], selected)


@dataclass(eq=False)
class _End:
    study: Study
    anchors: Anchors
    measure_all: MeasureAll
    known: list[Evaluation]
    surrogates: Surrogates

    @property
    def more_choices(self) -> int:
        """Return how many measurements are kept to meet limits closely."""
        search, select = self.study.search, self.study.select
        return min(2, search.remeasure) if select.limited else 0

    def shown_front(self) -> FloatArray:
        """Return the front after measuring points of it; (k, d)."""
        front = left = self._predicted_front()
        for _ in range(self.study.search.remeasure - self.more_choices):
            left = left[is_beside_measured(self.study, left, self.known)]
            if len(left):
                most = self._most_telling(left)
                self._measure(left[[most]])
                left = np.delete(left, most, axis=0)
        if len(left) < len(front):
            front = self._predicted_front()
        return self._with_measured(front)

    def _predicted_front(self) -> FloatArray:
        return self._safe(self.study.predicted_front(self.surrogates))

    def _safe(self, rows: FloatArray) -> FloatArray:
        """Return the rows (k, d) that are not beside a failure; all if none is not."""
        is_safe = is_beside_measured(self.study, rows, self.known)
        return rows[is_safe] if is_safe.any() else rows

    def choose(self, front: FloatArray) -> tuple[FloatArray, int]:
        """Choose from a front (k, d), and measure the choice; return the final rows."""
        study = self.study
        request = Request(study.select, study.tasks, self.anchors)
        lower = request.lower_bounds(request.limits())
        for _ in range(1 + self.more_choices):
            rows, selected = study.choose(self.surrogates, front, self.anchors)
            if not is_beside_measured(study, rows[[selected]], self.known)[0]:
                rows = self._safe(front)
                selected = choose(request, self._predict(rows))
            front = rows
            self._measure(front[[selected]])
            # A merge just within its limits may be outside them once it is fitted.
            if (self._predict(front[[selected]]) >= lower).all():
                break
        return front, selected

    def best_measured(self, default: FloatArray) -> FloatArray:
        """Return the merge that was measured as the best of one task; (1, d)."""
        X, Y = self._measured_merges()
        return X[[Y[:, 0].argmax()]] if len(X) else default

    def _most_telling(self, front: FloatArray) -> int:
        """Return the point of a front (k, d) that adds most to those measured here."""
        X, measured = self._measured_merges()
        Y, there = map(self._predict, (front, X[np.isfinite(measured).all(axis=1)]))
        worst, width = Y.min(axis=0), varying_range(Y)
        return int(improvements((Y - worst) / width, (there - worst) / width).argmax())

    def _measure(self, points: FloatArray) -> None:
        planned: list[Candidate] = [("front", self.study.rounded(x)) for x in points]
        self.take(self.measure_all(planned, self.surrogates))

    def take(self, measured: Sequence[Evaluation]) -> None:
        """Fit again if any measurement is new; a failure never replaces a value."""
        before = {e.key: e for e in self.known}
        new = {e.key: e for e in measured if not (e.failed and e.key in before)}
        if any(before.get(key) is not e for key, e in new.items()):
            self.known = list((before | new).values())
            self.surrogates = self.study.fit(self.known)

    def _with_measured(self, front: FloatArray) -> FloatArray:
        """Add merges that measurement confirms, in the order of a front; (k, d).

        They replace points with the same predictions. With one task, one merge is best.
        """
        X, Y = self._measured_merges()
        first = np.isin(np.arange(len(Y)), np.unique(Y, axis=0, return_index=True)[1])
        survived = X[non_dominated(Y) & first]
        there, added, seen = map(self._predict, (front, survived, X))
        width = np.ptp(np.vstack([there, seen]), axis=0)
        apart = np.abs(there[:, None] - added) > _SAME * width
        both = np.vstack([front[apart.any(axis=2).all(axis=1)], survived])
        keys = np.hstack([self._predict(both), both])[:, ::-1]
        ordered = both[np.lexsort(keys.T)]
        return np.asarray(ordered[-1:] if Y.shape[1] == 1 else ordered)

    def _measured_merges(self) -> tuple[FloatArray, FloatArray]:
        """List the merges measured here within the bounds, on all documents.

        (n, d) and (n, m), larger is better, NaN where unknown.
        """
        usable = (e for e in self.known if e.whole and not e.failed)
        found = by_merge(e for e in usable if e.role != "imported")
        X = self.study.vectors(map(dict, found))
        inside = self.study.contains(X)
        return X[inside], self.study.utilities(found.values())[inside]

    def _predict(self, X: FloatArray) -> FloatArray:
        return self.study.predict(self.surrogates, X)


def found_front(study: Study, result: StudyResult, log: Iterable[Evaluation]) -> Front:
    """Build a front with its reference points, and the chosen point."""
    log = list(log)
    here = [e for e in fittable(study, log) if e.role != "imported"]
    seen, whole = by_merge(here), by_merge(e for e in here if e.whole or e.failed)
    points = _merges(study, result, [None] * len(result.front), result.front, whole)
    anchors = _merges(study, result, study.anchors, study.anchors.values(), whole)
    corners = {merge_key(c): label for label, c in study.corners.items()}
    inside = {e.key[0]: e.coefficients for e in here}
    if not result.groups:  # else bounds are of groups
        is_inside = study.contains(study.vectors(inside.values()))
        inside = dict(itertools.compress(inside.items(), is_inside))
    shown = {merge_key(merge.coefficients) for merge in (*points, *anchors)}
    front = Front(
        coefficients=dict(study.bounds),
        groups={label: dict(group) for label, group in result.groups.items()},
        order=result.order,
        tasks={task: _task(study, result, task) for task in study.tasks},
        surrogate=study.search.surrogate,
        selected=result.selected,
        ending=result.ending,
        points=tuple(points),
        anchors=(*anchors, *_anchors_on_disk(study, log)),
        merges=tuple(
            _merge(study, next(iter(of.values())).coefficients, of, corners.get(key))
            for key, of in seen.items()
            if key not in shown and (key in inside or key in corners)
        ),
        # Whoever searches cannot set the bounds of groups of models.
        border=() if result.groups else tuple(find_border(study, result)),
        select=study.select,
        reason="",
    )
    return chosen_as(with_recommended(front), result.selected, study.select)


def _anchors_on_disk(study: Study, log: Sequence[Evaluation]) -> tuple[Merge, ...]:
    return tuple(
        Merge(
            label=label,
            coefficients={},
            linear=linear,
            predicted=dict.fromkeys(study.tasks, UNKNOWN),
            measured=measured_at(part, linear.weights, log),
        )
        for part in study.parts[1:]
        for label, linear in study.linear.items()
    )


def _merge(
    study: Study,
    coefficients: Mapping[str, float],
    measured: Mapping[str, Evaluation],
    label: str | None = None,
    predicted: Readings | None = None,
) -> Merge:
    foretold = {t: e.foretold for t, e in measured.items() if e.foretold is not None}
    prior = {task: foretold.get(task, UNKNOWN) for task in study.tasks}
    return Merge(
        label=label,
        coefficients=dict(coefficients),
        predicted=predicted,
        measured=study.readings(measured),
        foretold=prior if foretold else None,
    )


def _task(study: Study, result: StudyResult, task: str) -> Task:
    """Describe a task and its fit, with the accuracy that standard errors expect."""
    metric, surrogate = study.tasks[task], result.surrogates[task]
    places = fixed_sobol(surrogate.bounds)
    front = result.locate(result.front, study)
    error, seen = surrogate.stderr(places), surrogate.predict(places)
    unknown, level = (error**2).mean(), _ROUNDING * np.abs(seen).max()
    near, width = surrogate.stderr(front), np.ptp(surrogate.predict(front))
    width = max(width, LEAST_RANGE * np.ptp(seen))
    share = unknown / (seen.var() + unknown) if np.ptp(seen) > level else 0.0
    front_error = np.sqrt((near**2).mean()) / width if width > level else np.nan
    expected = {"expected_r2": 1 - share, "front_error": front_error}
    return Task(
        direction="maximize" if metric.higher_is_better else "minimize",
        range=(metric.lower, metric.upper),
        unit=metric.unit,
        fit=Fit.model_validate(plain({**asdict(surrogate.quality), **expected})),
        engine=study.engines.get(task),
    )


def _merges(
    study: Study,
    result: StudyResult,
    labels: Iterable[str | None],
    merges: Collection[Mapping[str, float]],
    seen: Mapping[MergeKey, Mapping[str, Evaluation]],
) -> list[Merge]:
    predictions = predict(result.surrogates, result.locate(merges, study))
    return [
        _merge(study, merge, seen.get(merge_key(merge), {}), label, predicted)
        for label, merge, predicted in zip(labels, merges, predictions, strict=True)
    ]


def read_partial_front(folder: RunFolder) -> Front | None:
    """Return the partial front of an unfinished search; None if the folder has it.

    Raises ArtifactError if too little is measured for one.
    """
    plan = folder.read_plan()
    of, wishes = run_digests(folder), [plan.select]
    with suppress(ArtifactError):
        earlier = folder.read_front()
        assert earlier.unfinished is not None
        if earlier.unfinished.of == of and not folder.choosing.exists():
            return None
        if earlier.select.index is None:  # else of another point now
            wishes.insert(0, earlier.select)
    study, log = _study_of(plan), list(read_log(folder.log))
    try:
        front = find_partial_front(study, log, wishes)
    except (ArtifactError, DesignError) as error:
        raise ArtifactError(
            f"{folder.path}: {error}; type the command of the search again to go on"
        ) from None
    merges = by_merge(fittable(study, log)).values()
    measured = sum(found.keys() >= study.tasks.keys() for found in merges)
    unfinished = Unfinished(measured=min(measured, plan.most), most=plan.most, of=of)
    front = front.model_copy(update={"unfinished": unfinished})
    return with_differences(front, folder, log)


def _study_of(plan: SearchPlan) -> Study:
    study = Study(
        bounds=plan.bounds,
        anchors=plan.anchors,
        corners=plan.corners,
        tasks=plan.tasks,
        definitions=plan.manifest.definitions,
        merge=plan.manifest.merge,
        search=plan.search,
        select=plan.select,
        documents=plan.documents,
    )
    if not plan.linear:
        return study
    anchors = {label: linear.weights for label, linear in plan.linear.items()}
    one = next(iter(plan.linear.values()))
    return replace(study, on_disk=study.of_models(anchors, one.merge))


def find_partial_front(
    study: Study, log: Sequence[Evaluation], wishes: Sequence[SelectSpec]
) -> Front:
    """Fit the measurements, and choose by the first selection that can be computed.

    Raises ArtifactError if too little is measured or the search is nested, and
    DesignError if the measurements cannot be fitted.
    """
    if study.search.strategy == "nested":
        raise ArtifactError("a nested search can be looked at when it is finished")
    known = fittable(study, log)
    seen = by_merge(known)
    latest = [e for found in seen.values() for e in found.values()]
    fixed = [seen.get(merge_key(merge), {}) for merge in study.fixed.values()]
    if not all(found.keys() >= study.tasks.keys() for found in fixed):
        raise ArtifactError("base, parents and soup are not measured on every task yet")
    anchors = reference_values(study, latest, log)
    study = replace(study, engines={e.task: e.engine for e in known if e.engine})
    surrogates = study.fit(latest)
    for wish in (*wishes, SelectSpec()):
        asked = replace(study, select=wish)
        # A limit may be of what is not measured yet.
        with suppress(ConfigError, DesignError):
            end = end_search(asked, latest, anchors, lambda *_: [], surrogates)
            return found_front(asked, end, log)
    raise AssertionError("without limits, any front can be chosen from")
