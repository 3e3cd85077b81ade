"""The checkpoint of a selection: written by mergekit, measured, and described."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import yaml
from mergekit.options import MergeOptions

from mergekit_map.evaluation.evaluator import MergeEvaluator, Worker, open_checkpoint
from mergekit_map.evaluation.holdout import measure_held_out, with_confirmation
from mergekit_map.evaluation.project import Project, finished_project, quiet_options
from mergekit_map.hub.card import MergeRecord, write_card
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.devices import check_device
from mergekit_map.merging.recipe import Recipes
from mergekit_map.models.files import refuse_replaced
from mergekit_map.results.front import Front, Merge
from mergekit_map.results.log import EvaluationLog, open_log, read_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import with_differences
from mergekit_map.results.selection import chosen_as, with_recommended
from mergekit_map.search.measure import measure, measured_at, missing_of, run_digests
from mergekit_map.search.study import Candidate
from mergekit_map.utils.files import StrPath, whole_folder
from mergekit_map.utils.progress import stage, warn
from mergekit_map.utils.text import listed
from mergekit_map.workflows.callbacks import Callback, CallbackList, reporting
from mergekit_map.workflows.results import Merged, Selection
from mergekit_map.workflows.select import (
    refuse_other_front,
    save_choice,
    select_point,
    selection_lock,
)

_ROUNDING = 1e-6  # of a value, between two ways to add up the same numbers


def merge_point(
    run: StrPath,
    out: StrPath,
    selection: Selection | None = None,
    options: MergeOptions | None = None,
    callbacks: Sequence[Callback] | None = None,
    *,
    trust_run: bool = False,
    model_paths: Mapping[str, StrPath] = {},
) -> Merged:
    """Write the checkpoint of a selection with mergekit, and measure what was written.

    Without a selection, the last choice is merged. The measurements go into the log,
    and those that the search lacked into the front. The card and a notice report
    differences to the search. Callbacks receive the progress; by default there is a
    ``ProgressLine``.

    Where models have moved, all recipes of the run folder get their new paths.

    Raises:
        ArtifactError: ``out`` exists, a search is writing the run folder, or that is
            damaged or has another front since the selection.
        MergeError: the models have changed since the search.
    """
    run, out = Path(run), Path(out)
    with reporting(callbacks) as events:
        project = finished_project(
            run, quiet_options(options), trust_run=trust_run, model_paths=model_paths
        )
        selection = selection or select_point(run)
        return _merge(project, selection, RunFolder(run), out, events)


def _merge(
    project: Project,
    selection: Selection,
    run: RunFolder,
    out: Path,
    events: CallbackList,
) -> Merged:
    check_device(project.options)
    recipes = Recipes(project.space, project.options)
    path = out / "mergekit_config.yml"
    refuse_replaced(project.identity.models)
    # While the log is open, no search replaces the front.
    with open_log(run) as log, whole_folder(out) as folder:
        refuse_other_front(run, selection.index, selection.point)
        of = run_digests(run) if run.unfinished else ""
        text = recipes.of_point(selection.front, selection.index, path)
        log.listener = events.on_measured
        with stage(f"writing the model folder {out}"):
            write_checkpoint(yaml.safe_load(text), folder, project.options)
        refuse_replaced(project.identity.models)
        point = selection.point
        # Base, soup and parents are measured on held-out documents at the end.
        held_out = selection.front.unfinished is None and project.held_out is not None
        searched, written = _measure_checkpoint(
            project, folder, log, point, held_out=held_out
        )
        if difference := _difference(point, written):
            warn(difference)
        with selection_lock(run):
            front = _with_measured(project, selection, searched, run, of)
            save_choice(front, run, recipes.texts(front, run))
            if project.has_references:
                recipes.write_soup(run)
        shown = front.with_point(selection.index, written)
        shown = chosen_as(shown, selection.index, selection.front.select)
        text = recipes.of_point(shown, selection.index, path)
        recipe = f"# {shown.reason}\n{text}"
        (folder / path.name).write_text(recipe, encoding="utf-8")
        command = recipes.command(Path(path.name))
        name, tasks = out.resolve().name, project.spec.tasks
        record = MergeRecord(name, recipe, command, shown, tasks, difference)
        if project.options.write_model_card:
            write_card(folder, record)
    return Merged(shown, out, recipes.command(path))


def _with_measured(
    project: Project, selection: Selection, searched: Merge, run: RunFolder, of: str
) -> Front:
    front = run.read_front().with_point(selection.index, searched)
    evaluations = list(read_log(run.log))
    front = with_differences(front, run, evaluations)
    if front.unfinished and front.unfinished.of == of:  # it and its choice stay
        unfinished = front.unfinished.model_copy(update={"of": run_digests(run)})
        front = front.model_copy(update={"unfinished": unfinished})
    elif not front.unfinished and project.held_out is not None:
        front = with_confirmation(project.held_out_study(), front, run, evaluations)
    # Another point may have been chosen meanwhile.
    return chosen_as(with_recommended(front), front.selected, front.select)


def _measure_checkpoint(
    project: Project, folder: Path, log: EvaluationLog, point: Merge, *, held_out: bool
) -> tuple[Merge, Merge]:
    """Measure every task on the checkpoint, and log values that the search lacks.

    Returns the point as the search measured it, and as the checkpoint.
    """
    study, merge = project.study(), point.coefficients
    with closing(Worker(open_checkpoint(project, folder))) as worker:
        shown: list[Candidate] = [("front", merge)]
        new = {task for *_, task in missing_of(study, shown, log)}
        known = [task for task in study.tasks if task not in new]
        # A single item of a search is of the merge that the search made.
        samples = log.folder.samples(study.merge)
        again, both = MergeEvaluator(worker, None), study.of_tasks(known)
        measure(study, shown, MergeEvaluator(worker, samples, study.definitions), log)
        measure(both, [("checkpoint", merge)], again, log)
        if held_out:
            measure_held_out(project.held_out_study(), [merge], again.on_held_out, log)
        searched = measured_at(study, merge, log)
        last = {e.task: e.reading for e in log if e.role == "checkpoint"}
    readings = {t: last[t] if t in known else searched[t] for t in study.tasks}
    return (
        point.model_copy(update={"measured": searched}),
        point.model_copy(update={"measured": readings}),
    )


def _difference(searched: Merge, written: Merge) -> str:
    """Describe differences to the front's measurements beyond rounding."""
    failed, differing = list[str](), list[str]()
    for task, reading in searched.measured.items():
        values = [reading.value, written.measured[task].value]
        before, now = (math.nan if value is None else value for value in values)
        alike = math.isclose(now, before, rel_tol=_ROUNDING, abs_tol=_ROUNDING**2)
        if values[1] is None:
            failed.append(task)
        elif values[0] is not None and reading.documents is None and not alike:
            differing.append(f"{task} is {now:.7g}, and was {before:.7g}")
    found = f"The checkpoint cannot be measured on {listed(failed)}. " if failed else ""
    if differing:
        found += (
            f"The checkpoint is not what the search measured: {'; '.join(differing)}. "
            "Either device, batches, versions or files have changed, or an import was "
            "rounded or of other documents, or the task does not give the same number "
            "twice."
        )
    return found.rstrip()
