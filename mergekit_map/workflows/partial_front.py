"""The partial front of a running or stopped search, in the files of a finished one.

It is computed from the log, and is the same whether the search was stopped, was killed
or is running. The search never reads it, so that its course does not depend on it, and
replaces it when it is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from mergekit_map.config.schema import SelectSpec
from mergekit_map.errors import ArtifactError, ConfigError, DesignError
from mergekit_map.results.front import Front, Unfinished
from mergekit_map.results.log import Evaluation, by_merge, read_log, whole_lines
from mergekit_map.results.run_folder import RunFolder, SearchPlan, recipe_of
from mergekit_map.results.samples import with_differences
from mergekit_map.results.surrogates import is_fitted
from mergekit_map.search.finish import end_search, found_front
from mergekit_map.search.measure import own_evaluations, reference_values
from mergekit_map.search.study import Study
from mergekit_map.utils.files import digest
from mergekit_map.workflows.select import save_choice


def measured_so_far(folder: RunFolder) -> str:
    """Return the digest of what an unfinished search has planned and measured."""
    found = [folder.plan.read_bytes(), *whole_lines(folder.log)]
    return digest([line.decode(errors="replace") for line in found])


def write_partial_front(folder: RunFolder) -> None:
    """Write the partial front of an unfinished search, unless it is up to date.

    Raises:
        ArtifactError: too little is measured for one.
    """
    plan = folder.read_plan()
    of, wishes = measured_so_far(folder), [plan.select]
    with suppress(ArtifactError):
        earlier = folder.read_front()
        assert earlier.unfinished is not None
        if earlier.unfinished.of == of and not folder.choosing.exists():
            return
        if earlier.select.index is None:  # else the number of another point now
            wishes.insert(0, earlier.select)
    study, log = _study_of(plan), list(read_log(folder.log))
    try:
        front = find_partial_front(study, log, wishes)
    except (ArtifactError, DesignError) as error:
        raise ArtifactError(
            f"{folder.path}: {error}; go on with: {plan.going_on(folder.path)}"
        ) from None
    # What was measured for another search comes on top of what this one measures.
    own = [e for e in log if e.taken is None or e.role == "anchor"]
    merges = by_merge(own_evaluations(study, own)).values()
    measured = sum(found.keys() >= study.tasks.keys() for found in merges)
    unfinished = Unfinished(measured=measured, most=plan.most, of=of)
    front = front.model_copy(update={"unfinished": unfinished})
    front = with_differences(front, folder, log)
    indices = range(len(front.points))
    save_choice(front, folder, {i: recipe_of(folder, front, i) for i in indices})


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
) -> Front:
    """Fit the measurements, and choose by the first selection that can be computed.

    Raises:
        ArtifactError: too few merges are measured, or pairs are merged one by one.
        DesignError: the measurements cannot be fitted.
    """
    if study.search.strategy == "nested":
        raise ArtifactError(
            "nested merges pair by pair, and can be looked at when it is finished"
        )
    known = [e for e in own_evaluations(study, log) if e.failed or is_fitted(e)]
    latest = list({e.key: e for e in known}.values())
    _refuse_too_few(study, known)
    anchors = reference_values(study, latest, log)
    study = replace(study, engines={e.task: e.engine for e in known if e.engine})
    surrogates = study.fit(latest)
    for wish in (*wishes, SelectSpec()):
        asked = replace(study, select=wish)
        # A limit may be of what is not measured yet.
        with suppress(ConfigError, DesignError):
            end = end_search(asked, [], latest, anchors, lambda *_: [], surrogates)
            return found_front(asked, replace(end, ending=None), log)
    raise AssertionError("without limits, any front can be chosen from")


def _refuse_too_few(study: Study, known: Sequence[Evaluation]) -> None:
    """Refuse fewer merges within the bounds than a plane, and one to check it."""
    found = by_merge(e for e in known if not e.failed).items()
    merges = [dict(key) for key, of in found if of.keys() >= study.tasks.keys()]
    count = int(study.contains(study.vectors(merges)).sum())
    needed = len(study.bounds) + 2
    if count < needed:
        raise ArtifactError(
            f"to predict merges, {needed} must be measured on every task, and {count} "
            "have been; there is nothing to look at yet"
        )
