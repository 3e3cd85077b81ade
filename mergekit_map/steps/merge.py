"""The checkpoint of a selection: written by mergekit, measured, and described."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from mergekit.options import MergeOptions

from mergekit_map.errors import ArtifactError
from mergekit_map.files import whole_folder
from mergekit_map.merging.checkpoint import write_checkpoint, write_staged_checkpoint
from mergekit_map.merging.recipe import Recipes, stock_config
from mergekit_map.publish.card import MergeRecord, write_card
from mergekit_map.publish.plots import save_front
from mergekit_map.results.choosing import chosen_as
from mergekit_map.results.front import Merge
from mergekit_map.results.log import open_log
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.steps.evaluate import MergeEvaluator, OneCheckpoint
from mergekit_map.steps.nested import finished_pairs
from mergekit_map.steps.project import Project, finished_project, refuse_changes
from mergekit_map.steps.select import Selection
from mergekit_map.study.measuring import measure
from mergekit_map.study.outcome import measured_at
from mergekit_map.study.study import Candidate, Reporter


def merge_point(
    run: Path,
    out: Path,
    selection: Selection,
    options: MergeOptions,
    reporter: Reporter,
    *,
    trust_run: bool = False,
) -> tuple[Merge, str]:
    """Write the checkpoint of a selection with mergekit, and measure what was written.

    What is measured of it goes into the log and the front of the run. Returns the point
    of ``front.json`` with all its measurements, and the stock command that writes the
    same checkpoint.

    Raises:
        ArtifactError: ``out`` exists, the run folder is not finished, or a recipe of it
            is not that of its point.
        MergeError: the models have changed since the search.
    """
    project = finished_project(run, options, trust_run=trust_run)
    recipes, place = Recipes(project.space, project.options), RunFolder(run)
    part = project  # that has the coefficients of the point
    if project.nests_checkpoints:
        part, recipes, place = finished_pairs(project, place)
    _refuse_other_recipe(recipes, selection, run)
    with whole_folder(out) as folder:
        if recipes.folder is not None:
            write_staged_checkpoint(
                selection.recipe, recipes.folder, folder, project.options
            )
            refuse_changes(part, place.read_manifest())  # now that the stages are there
        else:
            config = stock_config(part.space, selection.point.coefficients)
            write_checkpoint(config, folder, project.options)
        (folder / "mergekit_config.yml").write_text(selection.recipe, encoding="utf-8")
        point = _measure_checkpoint(part, folder, place, selection, reporter)
        front = RunFolder(run).read_front().with_point(selection.index, point)
        front = chosen_as(front, selection.index, selection.front.select)
        command = recipes.command(Path("mergekit_config.yml"), "OUT")
        tasks = project.spec.tasks
        record = MergeRecord(out.name, selection.recipe, command, front, tasks)
        write_card(folder, record)
    save_front(front, RunFolder(run))
    return point, recipes.command(RunFolder(run).chosen_recipe, "OUT")


def _refuse_other_recipe(recipes: Recipes, selection: Selection, run: Path) -> None:
    lines = selection.recipe.splitlines(keepends=True)
    given = "".join(line for line in lines if not line.startswith("#"))
    if given != recipes.text(selection.point.coefficients, ()):
        raise ArtifactError(
            f"{RunFolder(run).recipe(selection.index)} is not the recipe of point "
            f"{selection.index}: its coefficients give another one; search again, or "
            "merge the recipe itself with mergekit-yaml if it is what you want"
        )


def _measure_checkpoint(
    project: Project,
    folder: Path,
    run: RunFolder,
    selection: Selection,
    reporter: Reporter,
) -> Merge:
    study = project.study()
    candidate: Candidate = ("front", selection.point.coefficients)
    written = nullcontext(OneCheckpoint(project, folder))
    evaluator = MergeEvaluator(written, run.samples(study.merge))
    with open_log(run.log) as log, evaluator as evaluate:
        measure(study, [candidate], evaluate, log, reporter.progress)
        readings = measured_at(study, selection.point.coefficients, log)
    return selection.point.model_copy(update={"measured": readings})
