"""Evaluation of the choice of a search on held-out documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mergekit_map.evaluation.project import Project
from mergekit_map.results.front import UNKNOWN, Front, HoldoutEvaluation, HoldoutMerge
from mergekit_map.results.gains import best_single
from mergekit_map.results.log import Evaluation, EvaluationLog, by_merge, merge_key
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import AnswerStore, are_of
from mergekit_map.results.selection import judged
from mergekit_map.search.measure import matching, measure
from mergekit_map.search.nested import of_tasks
from mergekit_map.search.study import Candidate, Evaluator, Progress, Study
from mergekit_map.types import BASE, SOUP
from mergekit_map.workflows.item_comparison import Itemised, compare_items, itemise


class SplitEvaluator(Evaluator, Protocol):
    """An evaluator that can also measure held-out documents."""

    def held_out(self, samples: Path, definitions: Mapping[str, str]) -> Evaluator:
        """Return the evaluator of the same merges on held-out documents."""
        ...


@dataclass(frozen=True, eq=False)
class Confirming:
    """Measures merges on held-out documents, if the project has some.

    Measurements in the log are not repeated.
    """

    project: Project
    run: RunFolder
    log: EvaluationLog
    evaluate: SplitEvaluator
    report: Callable[[Progress], None]

    def front(self, front: Front) -> Front:
        """Measure the choice of a front and its rivals on held-out documents."""
        if self.project.held_out is None:
            return front
        labels = {BASE, SOUP}
        always = [a.coefficients for a in front.anchors if a.label in labels]
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
        held_out = self.evaluate.held_out(samples, study.definitions)
        candidates: list[Candidate] = [("holdout", merge) for merge in merges]
        part = of_tasks(study, tasks)
        measure(part, candidates, held_out, self.log, self.report)


def with_confirmation(
    project: Project, front: Front, run: RunFolder, log: Iterable[Evaluation]
) -> Front:
    """Add the measurements on held-out documents to a front, with diagnostics."""
    if project.held_out is None:
        return front
    study, log = project.held_out_study(), list(log)
    labels = {merge_key(a.logged): a.label for a in front.anchors}
    found = {
        part.merge: [
            e for e in matching(part, log) if e.role == "holdout" and not e.failed
        ]
        for part in ([study] if study.on_disk is None else [study, study.on_disk])
    }
    merges, records = [], []
    for merge, lines in found.items():
        store = AnswerStore(run.held_out_samples(merge), study.definitions)
        for key, of in by_merge(lines).items():
            merges.append(_held_out_merge(of, labels.get(key)))
            records.append(store)
    chosen = merge_key(front.chosen.coefficients)
    choices = {*by_merge(found[study.merge])} - labels.keys()
    compared = {
        task: compare_items(
            [_read(*pair, task) for pair in zip(records, merges, strict=True)]
        )
        for task in study.tasks
    }
    confirmation = HoldoutEvaluation(
        share=project.held_out.share,
        documents={e.task: e.n for e in found[study.merge]},
        choices=len(choices) + (chosen in labels),
        merges=tuple(merges),
        differences={t: one for t, one in compared.items() if one is not None},
    )
    return judged(front.model_copy(update={"holdout": confirmation}))


def _held_out_merge(found: Mapping[str, Evaluation], label: str | None) -> HoldoutMerge:
    return HoldoutMerge(
        label=label,
        coefficients=dict(next(iter(found.values())).coefficients),
        measured={task: e.reading for task, e in found.items()},
    )


def _read(records: AnswerStore, merge: HoldoutMerge, task: str) -> Itemised | None:
    answers = records.read(merge.coefficients, task)
    measured = merge.measured.get(task, UNKNOWN)
    return itemise(answers) if are_of(answers, measured) else None
