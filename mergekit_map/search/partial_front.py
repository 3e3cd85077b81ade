"""The partial front of an unfinished search, from the log alone.

It is the same whether the search was stopped, was killed or is still running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.optimize.front_refinement import non_dominated
from mergekit_map.results.front import Fit, Front, Merge, Task, recipe_name
from mergekit_map.results.gains import Anchors
from mergekit_map.results.log import ASSESSING, Evaluation, by_merge
from mergekit_map.results.selection import choose, chosen_as
from mergekit_map.results.surrogate_file import Surrogates
from mergekit_map.search.finish import (
    anchors_on_disk,
    end_search,
    fitted_surrogates,
    found_front,
    measured_at,
)
from mergekit_map.search.measure import matching, reference_values
from mergekit_map.search.study import Candidate, Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.surrogates.surrogate import Surrogate


def complete_merges(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """List the merges of a search on which it measured every task itself."""
    own = [
        e for e in matching(study, log) if e.role == "front" or e.role not in ASSESSING
    ]
    whole = {
        key for key, of in by_merge(own).items() if of.keys() >= study.tasks.keys()
    }
    return [e for e in own if e.key[0] in whole]


def find_partial_front(
    study: Study, log: Sequence[Evaluation], wishes: Sequence[SelectSpec]
) -> tuple[Front, Surrogates | None]:
    """Fit the measurements, and choose by the first selection that can be computed.

    If surrogates cannot be fitted, the front is of measured merges alone.

    Raises:
        ArtifactError: no merge is measured on every task.
    """
    known = complete_merges(study, log)
    if _is_enough(study, known):
        for wish in (*wishes, SelectSpec()):
            try:
                return _fitted_front(study, known, log, wish)
            except (ConfigError, DesignError):
                continue  # a limit of what is not measured yet, or a fit that fails
    return _measured_front(study, known, log, wishes), None


def _is_enough(study: Study, known: Sequence[Evaluation]) -> bool:
    """Whether a plane through the merges within the bounds leaves one to check it."""
    if study.search.strategy == "nested":  # whose merges lie on planes of pairs
        return False
    merges = {e.key[0]: e.coefficients for e in known if not e.failed}
    inside = study.contains(study.vectors(merges.values()))
    return int(inside.sum()) >= len(study.bounds) + 2


def _fitted_front(
    study: Study,
    known: Sequence[Evaluation],
    log: Sequence[Evaluation],
    wish: SelectSpec,
) -> tuple[Front, Surrogates]:
    study = replace(study, select=wish)
    latest = list({e.key: e for e in known}.values())
    anchors = reference_values(study, latest, log)
    result = end_search(study, [], latest, anchors, _measure_nothing)
    result = replace(result, ending=None)
    return found_front(study, result, log), fitted_surrogates(study, result)


def _measure_nothing(
    planned: Sequence[Candidate],  # noqa: ARG001
    surrogates: Mapping[str, Surrogate],  # noqa: ARG001
    *,
    always: bool = False,  # noqa: ARG001
) -> list[Evaluation]:
    return []


def _measured_front(
    study: Study,
    known: Sequence[Evaluation],
    log: Sequence[Evaluation],
    wishes: Sequence[SelectSpec],
) -> Front:
    merges = {e.key[0]: e.coefficients for e in known}.values()
    found = [_measured(study, merge, known) for merge in merges]
    found = [merge for merge in found if merge.is_measured(*study.tasks)]
    if not found:
        tasks = "every task" if len(study.tasks) > 1 else next(iter(study.tasks))
        raise ArtifactError(
            f"no merge is measured on {tasks} yet, so that there is nothing to look at"
        )
    anchors = tuple(
        _measured(study, merge, known).model_copy(update={"label": label})
        for label, merge in study.anchors.items()
    )
    Y = _utilities(study, found)
    order = np.flatnonzero(non_dominated(Y))
    order = order[np.argsort(Y[order, 0], kind="stable")]
    order = order[-1:] if len(study.tasks) == 1 else order
    points = tuple(
        found[i].model_copy(update={"recipe": recipe_name(place)})
        for place, i in enumerate(order)
    )
    shown = [merge.coefficients for merge in (*points, *anchors)]
    front = Front(
        coefficients=dict(study.bounds),
        tasks={task: _task(study, task, len(found), known) for task in study.tasks},
        surrogate=study.search.surrogate,
        selected=0,
        recommended=tuple(range(len(points))),
        points=points,
        anchors=(*anchors, *anchors_on_disk(study, log)),
        merges=tuple(
            merge.model_copy(update={"predicted": None})
            for merge in found
            if merge.coefficients not in shown
        ),
        reason="",
    )
    return _chosen(study, front, reference_values(study, known, log), wishes)


def _chosen(
    study: Study, front: Front, anchors: Anchors, wishes: Sequence[SelectSpec]
) -> Front:
    Y = front.utilities(front.points, "measured")
    for wish in wishes:
        try:
            index = choose(wish, study.tasks, Y, anchors)
            return chosen_as(front, index, wish)
        except (ConfigError, DesignError):
            continue
    index = choose(SelectSpec(), study.tasks, Y, anchors)
    return chosen_as(front, index, SelectSpec())


def _measured(
    study: Study, merge: Mapping[str, float], known: Sequence[Evaluation]
) -> Merge:
    readings = measured_at(study, merge, known)
    return Merge(coefficients=dict(merge), predicted=readings, measured=readings)


def _utilities(study: Study, merges: Sequence[Merge]) -> FloatArray:
    rows = [
        [
            metric.utility(m.measured[t].value or 0.0)
            for t, metric in study.tasks.items()
        ]
        for m in merges
    ]
    return np.array(rows, np.float64).reshape(len(rows), len(study.tasks))


def _task(study: Study, task: str, count: int, known: Sequence[Evaluation]) -> Task:
    metric = study.tasks[task]
    return Task(
        direction="maximize" if metric.higher_is_better else "minimize",
        range=(metric.lower, metric.upper),
        unit=metric.unit,
        fit=Fit(n=count, r2=None, loo_r2=None, kind="none"),
        engine=next((e.engine for e in known if e.task == task), None),
    )
