"""The checkpoint of a selection: written by mergekit, measured, and described."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mergekit.options import MergeOptions

from mergekit_map.evaluating import MergeEvaluator, one_checkpoint, samples_folder
from mergekit_map.files import whole_folder
from mergekit_map.finished import finished_project, refuse_changes
from mergekit_map.merging.checkpoint import write_checkpoint
from mergekit_map.merging.recipe import stock_config
from mergekit_map.nesting import Recipes, merge_stages, nests_checkpoints
from mergekit_map.pipeline import Reporter, write_front
from mergekit_map.project import Project
from mergekit_map.publish.card import MergeRecord, write_card
from mergekit_map.selection import Selection
from mergekit_map.study.log import open_log
from mergekit_map.study.measuring import measure
from mergekit_map.study.results import measured_point, read_json
from mergekit_map.study.study import Candidate
from mergekit_map.verdicts import verdicts


def merge_point(
    run: Path,
    out: Path,
    selection: Selection,
    options: MergeOptions,
    reporter: Reporter,
) -> tuple[Mapping[str, Any], str]:
    """Write the checkpoint of a selection with mergekit, and measure what was written.

    What is measured of it goes into the log and the front of the run. Returns the point
    of ``front.json`` with all its measurements, and the stock command that writes the
    same checkpoint.

    Raises:
        ArtifactError: ``out`` exists, or the run folder is not finished.
        MergeError: the models have changed since the search.
    """
    project = finished_project(run, options)
    recipes, place = Recipes(project), run
    with whole_folder(out) as folder:
        if nests_checkpoints(project):
            recipes, place = merge_stages(project, run, selection.recipe, folder)
            refuse_changes(recipes.project, read_json(place / "manifest.json", "pair"))
        else:
            config = stock_config(project.space, selection.point["coefficients"])
            write_checkpoint(config, folder, project.options)
        (folder / "mergekit_config.yml").write_text(selection.recipe, encoding="utf-8")
        point = _measure_checkpoint(recipes.project, folder, place, selection, reporter)
        front = _front_with(point, selection, run)
        command = recipes.command(Path("mergekit_config.yml"), "OUT")
        tasks = project.spec.tasks
        record = MergeRecord(out.name, selection.recipe, command, front, tasks)
        write_card(folder, record)
    write_front(front, run)
    return point, recipes.command(run / "recipe.yml", "OUT")


def _front_with(
    point: Mapping[str, Any], selection: Selection, run: Path
) -> dict[str, Any]:
    """Give the front as it is known now that a point of it is merged and measured."""
    front = read_json(run / "front.json", "front")
    front["points"][selection.index] = point
    front["selected"], front["reason"] = selection.index, selection.reason
    front["verdicts"] = verdicts(front)
    return front


def _measure_checkpoint(
    project: Project,
    folder: Path,
    run: Path,
    selection: Selection,
    reporter: Reporter,
) -> Mapping[str, Any]:
    """Measure what was written, on the tasks that are not measured there yet."""
    study = project.study()
    candidate: Candidate = ("front", selection.point["coefficients"])
    with (
        open_log(run / "evaluations.jsonl") as log,
        MergeEvaluator(
            lambda: one_checkpoint(project, folder), samples_folder(run, study)
        ) as evaluate,
    ):
        measure(study, [candidate], evaluate, log, reporter.progress)
        return measured_point(study, selection.point, log)
