"""The steps of the command line as functions: search, merge."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from mergekit.options import MergeOptions

from mergekit_map import __version__
from mergekit_map.errors import ArtifactError, MergeError
from mergekit_map.evaluating import (
    MergeEvaluator,
    merges_in_memory,
    merges_on_disk,
    one_checkpoint,
)
from mergekit_map.files import whole_folder, write_atomically
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import recipe_command, recipe_text, stock_config
from mergekit_map.project import Project, digest, load_project
from mergekit_map.publish.card import write_card
from mergekit_map.publish.plots import plot_front
from mergekit_map.selection import Selection, preference_reason
from mergekit_map.study.log import LOCK_NAME, EvaluationLog, open_log
from mergekit_map.study.results import (
    front_content,
    front_table,
    measured_point,
    read_json,
    surrogates_content,
    write_json,
)
from mergekit_map.study.study import (
    Candidate,
    Progress,
    Study,
    StudyResult,
    matching,
    measure,
    run_study,
)


class Reporter(Protocol):
    """Whoever wants to know how a search goes."""

    def progress(self, progress: Progress) -> None:
        """Hear that a measurement is about to start."""
        ...

    def notice(self, text: str) -> None:
        """Hear of something the user should know."""
        ...


def search_front(project: Project, run: Path, reporter: Reporter) -> dict[str, Any]:
    """Search into a run folder, going on where an earlier search was stopped.

    Returns what ``front.json`` holds.

    Raises:
        ArtifactError: the folder is something else's, or another search is writing it.
        MapError: the models or tasks cannot be merged or measured.
    """
    _claim_folder(run)
    study = project.study()
    opener = {"memory": merges_in_memory, "disk": merges_on_disk}[project.spec.merge]
    with (
        open_log(run / "evaluations.jsonl") as log,
        MergeEvaluator(lambda: opener(project), _samples(run, study)) as evaluate,
    ):
        (run / "manifest.json").unlink(missing_ok=True)
        write_atomically(run / "config.yml", project.file.text)
        _note_changes(project, study, log, run, reporter)
        result = run_study(study, evaluate, log, reporter.progress)
        front = front_content(study, result, log)
        latest = {e.key: e for e in matching(study, log)}
    if failed := sum(e.failed for e in latest.values()):
        reporter.notice(
            f"{failed} measurements failed and are left out of the fits; they are the "
            f"lines with a null value in {run / 'evaluations.jsonl'}"
        )
    _write_results(project, study, result, front, run)
    return front


def merge_point(
    run: Path,
    out: Path,
    selection: Selection,
    options: MergeOptions,
    reporter: Reporter,
) -> tuple[Mapping[str, Any], str]:
    """Write the checkpoint of a selection with mergekit, and measure what was written.

    Returns the point of ``front.json`` with all its measurements, and the stock command
    that writes the same checkpoint.

    Raises:
        ArtifactError: ``out`` exists, or the run folder is not finished.
        MergeError: the models have changed since the search.
    """
    manifest = read_json(run / "manifest.json", "finished search")
    if options.random_seed is None:
        options = options.model_copy(update={"random_seed": manifest["random_seed"]})
    project = load_project(run / "config.yml", options, Path(manifest["directory"]))
    study = project.study()
    _refuse_changes(project, study, manifest)
    config = stock_config(project.space, selection.point["coefficients"])
    with whole_folder(out) as folder:
        write_checkpoint(config, folder, project.options)
        (folder / "mergekit_config.yml").write_text(selection.recipe, encoding="utf-8")
        point = _measure_checkpoint(project, study, folder, run, selection, reporter)
        write_card(folder, out.name, config, selection, point)
    command = recipe_command(
        project.space, str(run / "recipe.yml"), "OUT", project.options
    )
    return point, command


def _refuse_changes(
    project: Project, study: Study, manifest: Mapping[str, Any]
) -> None:
    changed = [
        f"task {name!r}"
        for name, definition in study.definitions.items()
        if manifest["definitions"].get(name) != definition
    ]
    if study.merge != manifest["merge"]:
        changed.insert(0, _changes(manifest["identity"], project.identity))
    if changed:
        raise MergeError(
            f"{' and '.join(changed)} changed since the search, so the merge would not "
            "be the one that was measured; search again, or put back what changed"
        )


def _samples(run: Path, study: Study) -> Path:
    return run / "samples" / study.merge


def _measure_checkpoint(
    project: Project,
    study: Study,
    folder: Path,
    run: Path,
    selection: Selection,
    reporter: Reporter,
) -> Mapping[str, Any]:
    """Measure what was written, on the tasks that are not measured there yet."""
    candidate: Candidate = ("front", selection.point["coefficients"])
    with (
        open_log(run / "evaluations.jsonl") as log,
        MergeEvaluator(
            lambda: one_checkpoint(project, folder), _samples(run, study)
        ) as evaluate,
    ):
        measure(study, [candidate], evaluate, log, reporter.progress)
        return measured_point(study, selection.point, log)


def _claim_folder(run: Path) -> None:
    if run.exists() and not run.is_dir():
        raise ArtifactError(f"{run} is a file; name a folder for the search")
    known = (run / LOCK_NAME).exists()
    if run.is_dir() and any(run.iterdir()) and not known:
        raise ArtifactError(
            f"{run} holds files that are not of a search; name a new or empty folder"
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError(
            f"{run} cannot be written: {error}; name a folder you may write to"
        ) from None


def _note_changes(
    project: Project, study: Study, log: EvaluationLog, run: Path, reporter: Reporter
) -> None:
    """Say which measurements of an earlier search cannot be used, and why."""
    path = run / "identities.json"
    known: dict[str, Any] = {"version": 1, "merges": {}}
    if path.exists():
        known = read_json(path, "list of earlier merges")
    usable = {id(e) for e in matching(study, log)}
    unused = [e for e in log if id(e) not in usable and e.task in study.tasks]
    for merge in dict.fromkeys(e.merge for e in unused):
        count = sum(e.merge == merge for e in unused)
        before = known["merges"].get(merge, {})
        what = (
            "the task definition"
            if merge == study.merge
            else _changes(before, project.identity)
        )
        reporter.notice(
            f"{count} measurements in {log.path} are kept but not used: {what} "
            "changed; front and recipes will be those of the new search"
        )
    known["merges"][study.merge] = project.identity
    write_json(path, known)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if "models" in changed and before.get("models"):
        models = {**before["models"], **now["models"]}
        names = [
            Path(name).name
            for name in models
            if before["models"].get(name) != now["models"].get(name)
        ]
        changed[changed.index("models")] = f"models ({', '.join(names)})"
    return "the " + ", ".join(changed or ["configuration"])


def _write_results(
    project: Project,
    study: Study,
    result: StudyResult,
    front: dict[str, Any],
    run: Path,
) -> None:
    select = project.spec.select
    prefer = select.prefer or dict.fromkeys(study.tasks, 1.0)
    count = len(front["points"])
    front["reason"] = (
        preference_reason(result.selected, count, prefer)
        if select.index is None
        else f"Point {result.selected} of {count}, chosen by its index."
    )
    for index, point in enumerate(front["points"]):
        text = recipe_text(
            project.space,
            point["coefficients"],
            _recipe_comments(project, front, index, run),
        )
        write_atomically(run / point["recipe"], text)
        if index == result.selected:
            write_atomically(run / "recipe.yml", f"# {front['reason']}\n{text}")
    for stale in run.glob("recipes/*.yml"):
        if stale.stem.isdigit() and int(stale.stem) >= count:
            stale.unlink()
    write_json(run / "surrogates.json", surrogates_content(study, result))
    write_json(run / "front.json", front)
    write_atomically(run / "front.csv", front_table(front))
    plot_front(front, run / "front.png")
    write_json(run / "manifest.json", _manifest(project, study))


def _recipe_comments(
    project: Project, front: Mapping[str, Any], index: int, run: Path
) -> list[str]:
    point = front["points"][index]
    lines = [f"mergekit-map {__version__}, point {index} of {len(front['points'])}."]
    for task, predicted in point["predicted"].items():
        unit = front["tasks"][task]["unit"]
        text = f"{task}: predicted {predicted['value']:.6g} {unit}".rstrip()
        measured = point["measured"][task]["value"]
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    name = str(run / point["recipe"])
    command = recipe_command(project.space, name, "OUT", project.options)
    return [*lines, f"Merge it with: {command}"]


def _manifest(project: Project, study: Study) -> dict[str, Any]:
    packages = ("mergekit", "torch", "transformers", "lm_eval", "peft", "pymoo")
    return {
        "version": 1,
        "mergekit_map": __version__,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "config": digest(project.file.text),
        "directory": str(project.directory),
        "seed": study.search.seed,
        "random_seed": project.options.random_seed,
        "merge": study.merge,
        "identity": project.identity,
        "definitions": dict(study.definitions),
    }
