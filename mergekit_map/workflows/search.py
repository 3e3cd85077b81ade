"""The search as a function: from a project to a finished run folder."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from mergekit_map._version import __version__
from mergekit_map.errors import ConfigError
from mergekit_map.evaluation.evaluator import MergeEvaluator, Worker, open_merges
from mergekit_map.evaluation.holdout import measure_held_out, with_confirmation
from mergekit_map.evaluation.project import Project, load_project
from mergekit_map.merging.devices import choice_in_words
from mergekit_map.merging.recipe import Recipes, changes_in_words
from mergekit_map.results.front import Front
from mergekit_map.results.log import Evaluation, EvaluationLog, open_log
from mergekit_map.results.records import write_record
from mergekit_map.results.run_folder import Manifest, RunFolder, SearchPlan
from mergekit_map.results.samples import with_differences
from mergekit_map.results.selection import choose_measured
from mergekit_map.search.checks import Forecast, forecast, n_known
from mergekit_map.search.finish import found_front
from mergekit_map.search.loop import run_study
from mergekit_map.search.measure import fittable, matching, measure
from mergekit_map.search.reuse import add_imported, reuse_measurements
from mergekit_map.search.study import Candidate, Study
from mergekit_map.surrogates.fit import one_thread
from mergekit_map.tasks.engines import installed_vllm
from mergekit_map.utils.files import (
    StrPath,
    digest,
    read_json_or_nothing,
    write_atomically,
)
from mergekit_map.utils.progress import warn
from mergekit_map.utils.text import listed
from mergekit_map.workers.pool import WorkerPool, packed, process_pool
from mergekit_map.workers.ray import ray_pool
from mergekit_map.workflows.callbacks import Callback, CallbackList, Started, reporting
from mergekit_map.workflows.results import Run
from mergekit_map.workflows.select import save_choice, selection_lock


def search_front(
    project: Project | StrPath,
    run: StrPath,
    callbacks: Sequence[Callback] | None = None,
    imported: Sequence[Evaluation] = (),
    workers: int | str | WorkerPool | None = None,
) -> Run:
    """Search into a run folder, or continue a search that was stopped.

    The project may be the path of its configuration. Callbacks receive the events of
    the search; by default there is a ``ProgressLine``. ``imported`` has measurements
    from elsewhere, as ``read_imported`` returns them. ``workers`` is a number of
    processes, Ray actors (``"ray"``, ``"ray:4"``), or a pool that outlives the search.

    Raises:
        ArtifactError: the folder is something else's, or another search is writing it.
        ConfigError: with all problems of the configuration.
        MapError: the models or tasks cannot be merged or measured.
    """
    run = Path(run)
    with reporting(callbacks) as events:
        if not isinstance(project, Project):
            project = load_project(project)
        with _started_pool(workers) as pool:
            front = _search(project, run, events, pool, imported)
        events.tell(lambda one: one.on_finish(front))
    return Run(front, run)


def _search(
    project: Project,
    run: Path,
    events: CallbackList,
    pool: WorkerPool | None,
    imported: Sequence[Evaluation],
) -> Front:
    """Search into a folder, locked until its results are written."""
    folder = RunFolder(run)
    project = _project_for(folder, project, imported)
    study, recipes = project.study(), Recipes(project.space, project.options)
    folder.claim()
    with open_log(folder) as log:
        _begin(project, study, log, events, imported)
        _measure_references(project, study, log, pool)
        front = _measured_front(project, study, log, pool)
        _warn_of_failures(study, log)
        with selection_lock(folder):  # of who looks at the partial front
            save_choice(front, folder, recipes.texts(front, folder))
            if project.has_references:
                recipes.write_soup(folder)
            write_record(folder.manifest, _manifest(project, study))
            folder.plan.unlink()
    return front


def _project_for(
    folder: RunFolder, project: Project, imported: Sequence[Evaluation]
) -> Project:
    """Return a project as the run folder records it."""
    if imported and project.held_out is not None:
        raise ConfigError(
            "what was measured elsewhere may be of documents that 'holdout' keeps "
            "apart; leave out one of them"
        )
    if imported and project.spec.search.strategy != "map":
        raise ConfigError(
            f"the strategy {project.spec.search.strategy!r} chooses all of its merges; "
            "leave out the import, or set 'strategy: map'"
        )
    if (before := _measured_before(folder)) is not None:
        project = project.continuing(before)
    for note in project.notes:
        warn(note)
    if words := choice_in_words(project.options, was_open=project.open_device):
        warn(words)
    for name, chosen in project.engines.items():
        warn(f"answers of {name} are generated by {chosen.in_words()}")
    return project


def _started_pool(
    workers: int | str | WorkerPool | None,
) -> AbstractContextManager[WorkerPool | None]:
    if isinstance(workers, WorkerPool | None):
        return nullcontext(workers)
    found = re.fullmatch(r"([1-9][0-9]*)|ray(?::([1-9][0-9]*))?", str(workers))
    if found is None:
        text = f"a number from 1, 'ray' or 'ray:4' was expected, got {workers!r}"
        raise ConfigError(f"workers: {text}")
    if found[1]:
        return process_pool(int(found[1]))
    return ray_pool(int(found[2]) if found[2] else None)


def _workers_for(project: Project, pool: WorkerPool | None) -> Worker | WorkerPool:
    if pool is not None:
        return pool.work_for(packed(project, pool.count, pool.threads))
    return Worker(open_merges(project))


def _measured_front(
    project: Project, study: Study, log: EvaluationLog, pool: WorkerPool | None
) -> Front:
    workers, samples = _workers_for(project, pool), log.folder.samples(study.merge)
    with MergeEvaluator(workers, samples, study.definitions) as evaluate, one_thread():
        front = found_front(study, run_study(study, evaluate, log), log)
        front = choose_measured(with_differences(front, log.folder, log))
        if project.held_out is None:
            return front
        held_out = project.held_out_study()
        merges = [*held_out.anchors.values()]
        if front.chosen.coefficients not in merges:
            merges.append(front.chosen.coefficients)
        if not measure_held_out(held_out, merges, evaluate.on_held_out, log):
            return front  # which they do not confirm
        return with_confirmation(held_out, front, log.folder, log)


def _measured_before(run: RunFolder) -> Manifest | None:
    """Return the manifest of the folder's last search; None if a crash emptied it."""
    if read_json_or_nothing(run.plan):
        return run.read_plan().manifest
    return run.read_manifest() if read_json_or_nothing(run.manifest) else None


def _begin(
    project: Project,
    study: Study,
    log: EvaluationLog,
    events: CallbackList,
    imported: Sequence[Evaluation],
) -> None:
    """Write the plan of a search, and add what is known to its log."""
    folder, ahead, resumed = log.folder, forecast(study), log.folder.unfinished
    before, changed = _measured_before(folder), "the configuration"
    if before is not None:
        changed = changes_in_words(before.identity, project.identity)
        now, then = _manifest(project, study).packages, before.packages
        if others := [f"{n} {v}" for n, v in then.items() if now.get(n, v) != v]:
            warn(f"earlier measurements are those of {listed(others)}")
    write_record(folder.plan, _search_plan(project, study, folder, ahead))
    folder.manifest.unlink(missing_ok=True)
    write_atomically(folder.config, project.file.text)
    reuse_measurements(study, log, changed)
    add_imported(study, log, imported)
    known = [e for one in study.parts for e in fittable(one, log)]
    total = ahead.measurements
    if resumed or before != _manifest(project, study):  # some may be of another search
        total += len({(e.merge, e.key) for e in known}) - n_known(study, log)
    parts = project.held_out_study().parts if project.held_out else ()
    held_out = [e for part in parts for e in matching(part, log) if e.role == "holdout"]
    started = Started(
        run=folder.path,
        config=project.file.content,
        coefficients=study.bounds,
        tasks=study.tasks,
        total=total,
        known=[*known, *held_out],
    )
    events.start(started)
    log.listener = events.on_measured


def _warn_of_failures(study: Study, log: EvaluationLog) -> None:
    latest = {e.key: e for part in study.parts for e in matching(part, log)}
    if failed := sum(e.failed for e in latest.values()):
        warn(
            f"{failed} measurements failed and are left out of the fits; they are the "
            f"lines with a null value in {log.path}"
        )


def _search_plan(
    project: Project, study: Study, folder: RunFolder, ahead: Forecast
) -> SearchPlan:
    recipes = Recipes(project.space, project.options)
    return SearchPlan(
        manifest=_manifest(project, study),
        most=ahead.searched + ahead.front,
        bounds=dict(study.bounds),
        anchors={label: dict(merge) for label, merge in study.anchors.items()},
        corners={label: dict(merge) for label, merge in study.corners.items()},
        linear=study.linear,
        tasks=dict(study.tasks),
        documents=dict(study.documents),
        search=study.search,
        select=study.select,
        recipe=recipes.text(next(iter(study.fixed.values())), (), folder.recipe(0)),
    )


def _manifest(project: Project, study: Study) -> Manifest:
    packages = ["mergekit", "torch", "transformers", "lm_eval", "peft", "pymoo"]
    packages += ["vllm"] if installed_vllm() else []
    return Manifest(
        mergekit_map=__version__,
        python=platform.python_version(),
        packages={name: importlib.metadata.version(name) for name in packages},
        config=digest(project.file.text),
        directory=str(project.directory),
        seed=study.search.seed,
        random_seed=project.options.random_seed,
        merge=study.merge,
        identity=project.identity,
        definitions=dict(study.definitions),
        digests=4,
    )


def _measure_references(
    project: Project, study: Study, log: EvaluationLog, pool: WorkerPool | None
) -> None:
    part, models = study.on_disk, project.on_disk
    if part is None or models is None:
        return
    workers, samples = _workers_for(models, pool), log.folder.samples(part.merge)
    with MergeEvaluator(workers, samples, part.definitions) as evaluate:
        anchors: list[Candidate] = [("anchor", c) for c in part.anchors.values()]
        measure(part, anchors, evaluate, log)
        if project.held_out is not None:
            held_out = project.held_out_study().on_disk
            assert held_out is not None
            merges = held_out.anchors.values()
            measure_held_out(held_out, merges, evaluate.on_held_out, log)
