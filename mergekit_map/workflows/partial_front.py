"""The partial front of a running or stopped search, as a folder.

It is computed from the log and written to ``RUN/.state/so-far``, a run folder with a
log of its own. The search itself never reads it, so that its course does not depend on
it, and removes it when it is finished.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mergekit_map.config.schema import SelectSpec
from mergekit_map.config.yaml_file import read_text
from mergekit_map.errors import ArtifactError
from mergekit_map.report.plots import save_front
from mergekit_map.results.front import Unfinished
from mergekit_map.results.log import Evaluation, by_merge, read_log, whole_lines
from mergekit_map.results.recipe_rendering import recipe_like
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import (
    RunFolder,
    SearchPlan,
    open_run,
)
from mergekit_map.results.selection import judged
from mergekit_map.search.study import Study
from mergekit_map.utils.files import StrPath, digest, write_atomically
from mergekit_map.workflows.atomic_selection import (
    folder_lock,
    repaired_folder,
    write_recipes,
)


def look_at(run: StrPath) -> Path:
    """Return the folder to read a search from, finished or not.

    A finished search is read from its own folder. The partial front of an unfinished
    one, be it stopped, killed or running, is first written to a folder of its own,
    which ``select_point``, ``merge_point`` and ``write_report`` treat as a finished
    search.

    Raises:
        ArtifactError: there is nothing to look at yet, or a file is damaged.
    """
    run = Path(run)
    folder = RunFolder(run)
    if not folder.unfinished:
        return repaired_folder(run).path
    open_run(run)
    with folder_lock(folder.so_far_lock, folder.so_far.path):
        _write_partial_front(folder)
    return folder.so_far.path


def remove_partial_front(folder: RunFolder) -> None:
    """Remove the partial front and the plan of a search that is finished."""
    folder.plan.unlink(missing_ok=True)
    if folder.so_far.path.exists():
        with folder_lock(folder.so_far_lock, folder.so_far.path):
            shutil.rmtree(folder.so_far.path, ignore_errors=True)
    folder.so_far_lock.unlink(missing_ok=True)


def _write_partial_front(folder: RunFolder) -> None:
    """Write the partial front of an unfinished search, unless it is up to date."""
    plan, so_far = folder.read_plan(), folder.so_far
    if plan.recipe is None:
        finished = ", ".join(str(pair.path) for pair in folder.finished_pairs())
        raise ArtifactError(
            f"{folder.path} merges checkpoints pair by pair, and can be looked at when "
            f"it is finished; its pairs that are: {finished or 'none yet'}"
        )
    lines = whole_lines(folder.log)
    found_from = [folder.plan.read_bytes(), *lines]
    of = digest([line.decode(errors="replace") for line in found_from])
    wishes = [plan.select]
    with suppress(ArtifactError):
        earlier = so_far.read_front()
        if earlier.unfinished and earlier.unfinished.of == of:
            return
        if earlier.select.index is None:  # else the number of another point now
            wishes.insert(0, earlier.select)
    # Before anything is written: they may be damaged.
    measured, config = list(read_log(folder.log)), read_text(folder.config)
    so_far.claim()
    so_far.manifest.unlink(missing_ok=True)
    so_far.choosing.unlink(missing_ok=True)  # all of it is written anew
    # What merging a point so far has measured is not in the log of the search.
    known = set(lines)
    more = [line for line in whole_lines(so_far.log) if line not in known]
    write_atomically(so_far.log, b"".join(b"%b\n" % line for line in [*lines, *more]))
    write_atomically(so_far.config, config)
    samples, no_parts = folder.all_samples, shutil.ignore_patterns(".*")
    if samples.exists():
        shutil.copytree(
            samples, so_far.all_samples, ignore=no_parts, dirs_exist_ok=True
        )
    _write_found(folder, plan, measured, wishes, of)


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


def _write_found(
    folder: RunFolder,
    plan: SearchPlan,
    measured: Sequence[Evaluation],
    wishes: Sequence[SelectSpec],
    of: str,
) -> None:
    # It fits surrogates with SciPy, which a finished search has no use for.
    from mergekit_map.search.partial_front import complete_merges, find_partial_front

    study, so_far = _study_of(plan), folder.so_far
    log = list(read_log(so_far.log))
    try:
        front, surrogates = find_partial_front(study, log, wishes)
    except ArtifactError as error:
        again = plan.going_on(folder.path)
        raise ArtifactError(f"{folder.path}: {error}; go on with: {again}") from None
    # What was measured for another search comes on top of what this one measures.
    own = [e for e in measured if e.taken is None or e.role == "anchor"]
    unfinished = Unfinished(
        measured=len(by_merge(complete_merges(study, own))),
        most=plan.most,
        fitted=surrogates is not None,
        of=of,
    )
    front = judged(front.model_copy(update={"unfinished": unfinished}))
    so_far.surrogates.unlink(missing_ok=True)
    if surrogates is not None:
        write_record(so_far.surrogates, surrogates)
    recipe, identity = plan.recipe or "", plan.manifest.identity
    texts = [
        recipe_like(recipe, identity, front, index, so_far)
        for index in range(len(front.points))
    ]
    write_recipes(front, so_far, texts)
    save_front(front, so_far)
    write_record(so_far.manifest, plan.manifest)
