"""The partial front of an unfinished search, from the log alone.

It is the same whether the search was stopped, was killed or is still running.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Fit, Front, Merge, Task, recipe_name
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation, by_merge
from mergekit_map.results.selection import choose, chosen_as
from mergekit_map.results.surrogate_file import Surrogates
from mergekit_map.search.finish import (
    anchors_on_disk,
    end_search,
    fitted_surrogates,
    found_front,
    measured_at,
)
from mergekit_map.search.measure import own_evaluations, reference_values
from mergekit_map.search.study import Study


def complete_merges(study: Study, log: Iterable[Evaluation]) -> list[Evaluation]:
    """List the merges of a search on which it measured every task itself."""
    own = own_evaluations(study, log)
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
    latest = list({e.key: e for e in known}.values())
    anchors = reference_values(study, latest, log)
    for wish in (*wishes, SelectSpec()) if _is_enough(study, known) else ():
        asked = replace(study, select=wish)
        # A limit may be of what is not measured yet, and a fit may fail.
        with suppress(ConfigError, DesignError):
            result = end_search(asked, [], latest, anchors, lambda *_, **__: [])
            front = found_front(asked, replace(result, ending=None), log)
            return front, fitted_surrogates(asked, result)
    front = _measured_front(study, known, log)
    Y, choice = front.utilities(front.points, "measured"), SelectSpec()
    for wish in wishes:
        with suppress(ConfigError, DesignError):
            choose(Request(wish, study.tasks, anchors), Y)
            choice = wish
            break
    request = Request(choice, study.tasks, anchors)
    return chosen_as(front, choose(request, Y), choice), None


def _is_enough(study: Study, known: Sequence[Evaluation]) -> bool:
    """Whether a plane through the merges within the bounds leaves one to check it."""
    if study.search.strategy == "nested":  # whose merges lie on planes of pairs
        return False
    merges = {e.key[0]: e.coefficients for e in known if not e.failed}
    inside = study.contains(study.vectors(merges.values()))
    return int(inside.sum()) >= len(study.bounds) + 2


def _measured_front(
    study: Study, known: Sequence[Evaluation], log: Sequence[Evaluation]
) -> Front:
    def measured(coefficients: Mapping[str, float], label: str | None = None) -> Merge:
        readings = measured_at(study, coefficients, known)
        return Merge(
            label=label,
            coefficients=dict(coefficients),
            predicted=readings,
            measured=readings,
        )

    merges = map(measured, {e.key[0]: e.coefficients for e in known}.values())
    found = [merge for merge in merges if merge.is_measured(*study.tasks)]
    if not found:
        tasks = "every task" if len(study.tasks) > 1 else next(iter(study.tasks))
        raise ArtifactError(
            f"no merge is measured on {tasks} yet, so that there is nothing to look at"
        )
    anchors = [measured(merge, label) for label, merge in study.anchors.items()]
    engines = {e.task: e.engine for e in reversed(known)}
    whole = Front(
        coefficients=dict(study.bounds),
        tasks={
            task: Task(
                direction="maximize" if metric.higher_is_better else "minimize",
                range=(metric.lower, metric.upper),
                unit=metric.unit,
                fit=Fit(n=len(found), r2=None, loo_r2=None, kind="none"),
                engine=engines.get(task),
            )
            for task, metric in study.tasks.items()
        },
        surrogate=study.search.surrogate,
        selected=0,
        points=tuple(found),
        anchors=(*anchors, *anchors_on_disk(study, log)),
        reason="",
    )
    Y = whole.utilities(found, "measured")
    order = np.flatnonzero(non_dominated(Y))
    order = order[np.argsort(Y[order, 0], kind="stable")]
    order = order[-1:] if len(study.tasks) == 1 else order
    points = tuple(
        found[i].model_copy(update={"recipe": recipe_name(place)})
        for place, i in enumerate(order)
    )
    shown = [merge.coefficients for merge in (*points, *anchors)]
    others = tuple(
        merge.model_copy(update={"predicted": None})
        for merge in found
        if merge.coefficients not in shown
    )
    numbers = tuple(range(len(points)))
    update = {"points": points, "merges": others, "recommended": numbers}
    return whole.model_copy(update=update)
