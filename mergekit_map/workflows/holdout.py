"""The choice of a search on held-out documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mergekit_map.evaluation.evaluator import MergeEvaluator
from mergekit_map.evaluation.project import Project
from mergekit_map.results.front import UNKNOWN, Front, HoldoutEvaluation, Merge
from mergekit_map.results.gains import best_single
from mergekit_map.results.log import Evaluation, EvaluationLog, by_merge, merge_key
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import (
    Itemised,
    SampleStore,
    are_of,
    differences_of,
    itemise,
)
from mergekit_map.search.measure import matching, measure
from mergekit_map.search.nested import of_tasks
from mergekit_map.search.study import Candidate, Study
from mergekit_map.types import NO_SINGLE_MODEL


@dataclass(frozen=True, eq=False)
class Confirming:
    """Measures merges on held-out documents, if the project has some.

    Measurements in the log are not repeated.
    """

    project: Project
    run: RunFolder
    log: EvaluationLog
    evaluate: MergeEvaluator

    def front(self, front: Front) -> Front:
        """Measure the choice of a front and its rivals on held-out documents."""
        if self.project.held_out is None:
            return front
        always = (a.coefficients for a in front.anchors if a.label in NO_SINGLE_MODEL)
        own = [coefficients for coefficients in always if coefficients]
        study = self.project.held_out_study()
        self.measure(study, [front.chosen.coefficients, *own], front.tasks)
        for task in front.tasks:
            single = best_single(front, task)
            if single is not None and single.coefficients:
                self.measure(study, [single.coefficients], [task])
        return with_confirmation(self.project, front, self.run, self.log)

    def measure(
        self, study: Study, merges: Iterable[Mapping[str, float]], tasks: Iterable[str]
    ) -> None:
        """Measure some merges on the held-out documents of some tasks."""
        samples = self.run.held_out_samples(study.merge)
        held_out = self.evaluate.on_held_out(samples, study.definitions)
        candidates: list[Candidate] = [("holdout", merge) for merge in merges]
        part = of_tasks(study, tasks)
        measure(part, candidates, held_out, self.log)


def with_confirmation(
    project: Project, front: Front, run: RunFolder, log: Iterable[Evaluation]
) -> Front:
    """Add the measurements on held-out documents to a front."""
    if project.held_out is None:
        return front
    study, log = project.held_out_study(), list(log)
    labels = {merge_key(a.logged): a.label for a in front.anchors}
    found = {
        part.merge: [
            e for e in matching(part, log) if e.role == "holdout" and not e.failed
        ]
        for part in study.parts
    }
    merges, items = [], {task: list[Itemised | None]() for task in study.tasks}
    for fingerprint, lines in found.items():
        store = SampleStore(run.held_out_samples(fingerprint), study.definitions)
        for key, of in by_merge(lines).items():
            coefficients = dict(next(iter(of.values())).coefficients)
            measured = {task: e.reading for task, e in of.items()}
            label = labels.get(key)
            merges.append(
                Merge(label=label, coefficients=coefficients, measured=measured)
            )
            for task, known in items.items():
                answers = store.answers(coefficients, task)
                reading = measured.get(task, UNKNOWN)
                known.append(itemise(answers) if are_of(answers, reading) else None)
    chosen = merge_key(front.chosen.coefficients)
    choices = {*by_merge(found[study.merge])} - labels.keys()
    confirmation = HoldoutEvaluation(
        documents={e.task: e.n for e in found[study.merge]},
        choices=len(choices) + (chosen in labels),
        merges=tuple(merges),
        differences=differences_of(items),
    )
    return front.model_copy(update={"holdout": confirmation})
