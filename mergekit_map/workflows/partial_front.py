"""The partial front of a running or stopped search, in the files of a finished one.

It is computed from the log, and is the same whether the search was stopped, was killed
or is running. The search never reads it, so that its course does not depend on it, and
replaces it when it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.optimize.front_filling import non_dominated
from mergekit_map.results.front import Front, Unfinished
from mergekit_map.results.gains import Anchors
from mergekit_map.results.limits import Request
from mergekit_map.results.log import Evaluation, by_merge, read_log, whole_lines
from mergekit_map.results.recipe_rendering import recipe_of
from mergekit_map.results.run_folder import RunFolder, SearchPlan
from mergekit_map.results.selection import choose
from mergekit_map.results.surrogates import is_fitted
from mergekit_map.search.finish import (
    end_search,
    found_front,
    measured_merges,
)
from mergekit_map.search.measure import (
    on_disk_evaluations,
    own_evaluations,
    reference_values,
)
from mergekit_map.search.study import Study, StudyResult
from mergekit_map.utils.files import digest
from mergekit_map.workflows.atomic_selection import save_choice
from mergekit_map.workflows.differences import with_differences


def measured_so_far(folder: RunFolder) -> str:
    """Return the digest of what an unfinished search has planned and measured."""
    found = [folder.plan.read_bytes(), *whole_lines(folder.log)]
    return digest([line.decode(errors="replace") for line in found])


def write_partial_front(folder: RunFolder) -> None:
    """Write the partial front of an unfinished search, unless it is up to date."""
    plan = folder.read_plan()
    if plan.recipe is None:
        finished = ", ".join(str(pair.path) for pair in folder.finished_pairs())
        raise ArtifactError(
            f"{folder.path} merges checkpoints pair by pair, and can be looked at when "
            f"it is finished; its pairs that are: {finished or 'none yet'}"
        )
    of, wishes = measured_so_far(folder), [plan.select]
    with suppress(ArtifactError):
        earlier = folder.read_front()
        assert earlier.unfinished is not None
        if earlier.unfinished.of == of and not folder.choosing.exists():
            return
        if earlier.select.index is None:  # else the number of another point now
            wishes.insert(0, earlier.select)
    front = _find(folder, plan, wishes, of)
    indices = range(len(front.points))
    save_choice(front, folder, {i: recipe_of(folder, front, i) for i in indices})


def _find(
    folder: RunFolder, plan: SearchPlan, wishes: Sequence[SelectSpec], of: str
) -> Front:
    """Find the partial front, and say how far the search is."""
    study, log = _study_of(plan), list(read_log(folder.log))
    try:
        front, fitted = find_partial_front(study, log, wishes)
    except ArtifactError as error:
        raise ArtifactError(
            f"{folder.path}: {error}; go on with: {plan.going_on(folder.path)}"
        ) from None
    # What was measured for another search comes on top of what this one measures.
    own = [e for e in log if e.taken is None or e.role == "anchor"]
    merges = by_merge(own_evaluations(study, own)).values()
    unfinished = Unfinished(
        measured=sum(found.keys() >= study.tasks.keys() for found in merges),
        most=plan.most,
        fitted=fitted,
        of=of,
    )
    front = front.model_copy(update={"unfinished": unfinished})
    return with_differences(front, folder, log)


def _study_of(plan: SearchPlan) -> Study:
    """Return the study of a project, without the models."""
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
) -> tuple[Front, bool]:
    """Fit the measurements, and choose by the first selection that can be computed.

    If surrogates cannot be fitted, the front is of measured merges alone.

    Raises:
        ArtifactError: no merge is measured on every task.
    """
    known = [e for e in own_evaluations(study, log) if e.failed or is_fitted(e)]
    latest = list({e.key: e for e in known}.values())
    anchors = reference_values(study, latest, log)
    study = replace(study, engines={e.task: e.engine for e in known if e.engine})
    every = [*wishes, SelectSpec()]
    for wish in every if _is_enough(study, known) else ():
        asked = replace(study, select=wish)
        # A limit may be of what is not measured yet, and a fit may fail.
        with suppress(ConfigError, DesignError):
            result = end_search(asked, [], latest, anchors, lambda *_: [])
            return found_front(asked, replace(result, ending=None), log), True
    measured = [*known, *on_disk_evaluations(study, log)]
    for wish in every:
        asked = replace(study, select=wish)
        with suppress(ConfigError, DesignError):
            result = _measured_front(asked, latest, anchors)
            return found_front(asked, result, measured), False
    raise AssertionError("without limits, any front can be chosen from")


def _is_enough(study: Study, known: Sequence[Evaluation]) -> bool:
    """Whether a plane through the merges within the bounds leaves one to check it."""
    if study.search.strategy == "nested":  # whose merges lie on planes of pairs
        return False
    found = by_merge(e for e in known if not e.failed).items()
    merges = [dict(key) for key, of in found if of.keys() >= study.tasks.keys()]
    inside = study.contains(study.vectors(merges))
    return int(inside.sum()) >= len(study.bounds) + 2


def _measured_front(
    study: Study, known: Sequence[Evaluation], anchors: Anchors
) -> StudyResult:
    """Return the front of the measured merges, without surrogates."""
    X, Y = measured_merges(study, known)
    order = np.flatnonzero(non_dominated(Y))
    if not len(order):
        tasks = "every task" if len(study.tasks) > 1 else next(iter(study.tasks))
        raise ArtifactError(
            f"no merge is measured on {tasks} yet, so that there is nothing to look at"
        )
    order = order[np.argsort(Y[order, 0], kind="stable")]
    order = order[-1:] if len(study.tasks) == 1 else order
    selected = choose(Request(study.select, study.tasks, anchors), Y[order])
    return StudyResult({}, [study.named(row) for row in X[order]], selected)
