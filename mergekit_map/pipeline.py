"""The search as a function: from a project to a finished run folder."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mergekit_map import __version__
from mergekit_map.errors import ArtifactError
from mergekit_map.evaluating import (
    MergeEvaluator,
    merges_as_asked,
    samples_folder,
)
from mergekit_map.files import write_atomically
from mergekit_map.finished import changes_in_words
from mergekit_map.nesting import (
    Recipes,
    last_pair_folder,
    nests_checkpoints,
    search_pairs,
)
from mergekit_map.project import Project, digest
from mergekit_map.publish.plots import plot_front
from mergekit_map.selection import selection_reason
from mergekit_map.study.grouping import first_candidates
from mergekit_map.study.importing import add_imported
from mergekit_map.study.log import LOCK_NAME, Evaluation, EvaluationLog, open_log
from mergekit_map.study.measuring import matching, measure
from mergekit_map.study.results import (
    front_content,
    front_table,
    read_json,
    surrogates_content,
    write_json,
)
from mergekit_map.study.running import run_study
from mergekit_map.study.study import Progress, Study, StudyResult
from mergekit_map.verdicts import verdicts


class Reporter(Protocol):
    """Whoever wants to know how a search goes."""

    def progress(self, progress: Progress) -> None:
        """Hear that a measurement is about to start."""
        ...

    def notice(self, text: str) -> None:
        """Hear of something the user should know."""
        ...


def search_front(
    project: Project,
    run: Path,
    reporter: Reporter,
    imported: Sequence[Evaluation] = (),
) -> dict[str, Any]:
    """Search into a run folder, going on where an earlier search was stopped.

    What was measured elsewhere may be imported, as ``read_imported`` gives it. Returns
    what ``front.json`` holds.

    Raises:
        ArtifactError: the folder is something else's, or another search is writing it.
        MapError: the models or tasks cannot be merged or measured.
    """
    if nests_checkpoints(project):
        return _search_nested(project, run, reporter, imported)
    with _opened_run(project, run, reporter, imported) as (study, log, evaluate):
        result = run_study(study, evaluate, log, reporter.progress)
        front = front_content(study, result, log)
        _write_stages(result, log, run)
    surrogates = surrogates_content(study, result)
    _write_results(project, front, surrogates, Recipes(project), run)
    return front


def _search_nested(
    project: Project, run: Path, reporter: Reporter, imported: Sequence[Evaluation]
) -> dict[str, Any]:
    """Search pair after pair, each into a folder of its own."""
    with _opened_run(project, run, reporter, imported) as (study, log, evaluate):
        anchors = first_candidates(study)
        measure(study, anchors, evaluate, log, reporter.progress)
        evaluations = matching(study, log)

    def search(pair: Project, folder: Path) -> Mapping[str, Any]:
        return search_front(pair, folder, reporter)

    front, recipes = search_pairs(project, evaluations, run, search)
    last = last_pair_folder(project, run)
    surrogates = read_json(last / "surrogates.json", "finished search")
    _write_results(project, front, surrogates, recipes, run)
    return front


@contextmanager
def _opened_run(
    project: Project, run: Path, reporter: Reporter, imported: Sequence[Evaluation]
) -> Iterator[tuple[Study, EvaluationLog, MergeEvaluator]]:
    """Open a run folder and the models, as long as merges are measured."""
    _claim_folder(run)
    study = project.study()
    opener = merges_as_asked(project)
    with (
        open_log(run / "evaluations.jsonl") as log,
        MergeEvaluator(lambda: opener(project), samples_folder(run, study)) as evaluate,
    ):
        (run / "manifest.json").unlink(missing_ok=True)
        write_atomically(run / "config.yml", project.file.text)
        _note_changes(project, study, log, run, reporter)
        add_imported(study, log, imported, reporter.notice)
        yield study, log, evaluate
        latest = {e.key: e for e in matching(study, log)}
    if failed := sum(e.failed for e in latest.values()):
        reporter.notice(
            f"{failed} measurements failed and are left out of the fits; they are the "
            f"lines with a null value in {run / 'evaluations.jsonl'}"
        )


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
    unused = [
        e
        for e in log
        if id(e) not in usable and e.task in study.tasks and e.role != "baseline"
    ]
    for merge in dict.fromkeys(e.merge for e in unused):
        count = sum(e.merge == merge for e in unused)
        before = known["merges"].get(merge, {})
        what = (
            "the task definition"
            if merge == study.merge
            else changes_in_words(before, project.identity)
        )
        reporter.notice(
            f"{count} measurements in {log.path} are kept but not used: {what} "
            "changed; front and recipes will be those of the new search"
        )
    known["merges"][study.merge] = project.identity
    write_json(path, known)


def _write_stages(result: StudyResult, log: EvaluationLog, run: Path) -> None:
    """Keep and draw the front of every pair of nested MAP."""
    for stage in result.stages:
        front = front_content(stage.study, stage.result, log)
        select, chosen = stage.study.select, stage.result.selected
        front["reason"] = selection_reason(front, select, chosen)
        for point in front["points"]:
            del point["recipe"]  # only the whole is merged
        folder = run / "nested" / stage.name
        write_json(folder / "front.json", front)
        plot_front(front, folder / "front.png")


def _write_results(
    project: Project,
    front: dict[str, Any],
    surrogates: Mapping[str, Any],
    recipes: Recipes,
    run: Path,
) -> None:
    select = project.spec.select
    front["select"] = select.model_dump(exclude_unset=True)
    front["reason"] = selection_reason(front, select, front["selected"])
    front["verdicts"] = verdicts(front)
    count = len(front["points"])
    for index, point in enumerate(front["points"]):
        comments = _recipe_comments(recipes, front, index, run)
        text = recipes.text(point["coefficients"], comments)
        write_atomically(run / point["recipe"], text)
        if index == front["selected"]:
            write_atomically(run / "recipe.yml", f"# {front['reason']}\n{text}")
    for stale in run.glob("recipes/*.yml"):
        if stale.stem.isdigit() and int(stale.stem) >= count:
            stale.unlink()
    write_json(run / "surrogates.json", surrogates)
    write_front(front, run)
    write_json(run / "manifest.json", _manifest(project, project.study()))


def write_front(front: Mapping[str, Any], run: Path) -> None:
    """Write a front as JSON, as CSV and as a picture."""
    write_json(run / "front.json", front)
    write_atomically(run / "front.csv", front_table(front))
    plot_front(front, run / "front.png")


def _recipe_comments(
    recipes: Recipes, front: Mapping[str, Any], index: int, run: Path
) -> list[str]:
    point = front["points"][index]
    lines = [f"mergekit-map {__version__}, point {index} of {len(front['points'])}."]
    for task, predicted in point["predicted"].items():
        unit = front["tasks"][task]["unit"]
        text = f"{task}: predicted {predicted['value']:.6g} {unit}".rstrip()
        measured = point["measured"][task]["value"]
        lines.append(text if measured is None else f"{text}, measured {measured:.6g}")
    command = recipes.command(run / point["recipe"], "OUT")
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
