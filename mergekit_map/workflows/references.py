"""Measuring base, parents and soup as they are on disk, before a search.

Only reference points that are no merges of the search are measured here, as linear
merges of the models, once per run folder.
"""

from __future__ import annotations

from collections.abc import Callable

from mergekit_map.evaluation.evaluator import MergeEvaluator
from mergekit_map.evaluation.project import Project
from mergekit_map.merging.recipe import Recipes
from mergekit_map.merging.reference_points import linear_space, soup_weights
from mergekit_map.results.log import EvaluationLog
from mergekit_map.results.out_of_order_results import OutOfOrderResults
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.search.measure import measure
from mergekit_map.search.references import reference_values
from mergekit_map.search.study import Candidate, Progress, Study
from mergekit_map.types import BASE, NO_SINGLE_MODEL, SOUP
from mergekit_map.utils.files import write_atomically
from mergekit_map.workers.pool import WorkerPool
from mergekit_map.workflows.holdout import Confirming
from mergekit_map.workflows.search_loop import workers_for


def measure_references(
    project: Project,
    study: Study,
    log: EvaluationLog,
    early: OutOfOrderResults,
    report: Callable[[Progress], None],
    pool: WorkerPool | None,
) -> None:
    """Measure what the log lacks, also on held-out documents.

    Raises:
        EvaluationError: the first of them cannot be measured.
    """
    part, models = study.on_disk, project.on_disk
    if part is None or models is None:
        return
    run = RunFolder(log.path.parent)
    waiting = early.of(part.merge, part.definitions)
    samples = run.samples(part.merge)
    workers = workers_for(models, pool)
    with MergeEvaluator(workers, samples, part.definitions, waiting) as evaluate:
        candidates: list[Candidate] = [("anchor", c) for c in part.anchors.values()]
        measure(part, candidates, evaluate, log, report)
        confirming = Confirming(models, run, log, evaluate, report)
        always = [part.anchors[k] for k in (BASE, SOUP) if k in part.anchors]
        held_out = project.held_out_study().on_disk if project.held_out else None
        if held_out is None:
            return
        confirming.measure(held_out, always, part.tasks)
        values = reference_values(study, (), log).values
        for task, metric in part.tasks.items():
            singles = {
                label: metric.utility(values[label][task])
                for label in part.anchors.keys() - NO_SINGLE_MODEL
                if task in values[label]
            }
            if singles:
                best = max(sorted(singles), key=lambda label: singles[label])
                confirming.measure(held_out, [part.anchors[best]], [task])


def write_soup(project: Project, run: RunFolder) -> None:
    """Write the recipe of the plain average of the parents, for stock mergekit."""
    recipes = Recipes(linear_space(project.space), project.options)
    command = recipes.command(run.soup_recipe, "OUT")
    comments = [
        "The soup: the plain average of the models, without a search.",
        f"Merge it with: {command}",
    ]
    text = recipes.text(soup_weights(project.space), comments)
    write_atomically(run.soup_recipe, text)
