"""The choice of a search on held-out documents, and paired errors item by item."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mergekit_map.evaluation.evaluator import MergeEvaluator
from mergekit_map.evaluation.project import Project
from mergekit_map.results.front import UNKNOWN, Front, HoldoutEvaluation, Merge
from mergekit_map.results.gains import best_single
from mergekit_map.results.log import (
    Evaluation,
    EvaluationLog,
    Role,
    by_merge,
    merge_key,
)
from mergekit_map.results.paired import Differences, stderrs_of_differences
from mergekit_map.results.run_folder import RunFolder
from mergekit_map.results.samples import (
    SampleStore,
    answers_of,
    are_of,
    mean_of,
    read_sample_file,
)
from mergekit_map.results.selection import judged
from mergekit_map.search.measure import matching, measure
from mergekit_map.search.nested import of_tasks
from mergekit_map.search.study import Candidate, Progress, Study
from mergekit_map.surrogates.arrays import FloatArray
from mergekit_map.types import NO_SINGLE_MODEL, Answers

# What rivals of a search measured is no part of it.
_RIVALS: frozenset[Role] = frozenset({"opponent", "baseline"})


@dataclass(frozen=True, eq=False)
class Confirming:
    """Measures merges on held-out documents, if the project has some.

    Measurements in the log are not repeated.
    """

    project: Project
    run: RunFolder
    log: EvaluationLog
    evaluate: MergeEvaluator
    report: Callable[[Progress], None]

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
        share=project.held_out.share,
        documents={e.task: e.n for e in found[study.merge]},
        choices=len(choices) + (chosen in labels),
        merges=tuple(merges),
        differences=_differences(items),
    )
    return judged(front.model_copy(update={"holdout": confirmation}))


def samples_of(project: Project, run: RunFolder) -> Path:
    """Return the folder of records of the merges of a front.

    Where pairs of checkpoints are merged, they are finished.
    """
    if not project.nests_checkpoints:
        return run.samples(project.merge)
    last = run.pair(len(project.space.names) - 1)
    return last.samples(last.read_manifest().merge)


@dataclass(frozen=True, eq=False)
class Itemised:
    """The influence of each item on a value."""

    items: tuple[tuple[str, int], ...]  # the part of a group, and the item in all
    influences: FloatArray  # (n,) in the unit of the value


def with_differences(
    front: Front, samples: Path, run: RunFolder, log: Iterable[Evaluation] = ()
) -> Front:
    """Compare merges item by item where possible, and assess the front with that.

    ``samples`` has the records of its merges, the run folder those of linear ones.
    """
    evaluations = list(log)
    own = {merge_key(e.coefficients) for e in evaluations if e.role not in _RIVALS}
    rivals = {merge_key(e.coefficients) for e in evaluations} - own

    def read(merge: Merge, task: str) -> Itemised | None:
        if merge_key(merge.coefficients) in rivals:
            return None
        folder = run.samples(merge.linear.merge) if merge.linear else samples
        content = read_sample_file(folder / task, merge.logged)
        answers = answers_of(content)
        if not are_of(answers, merge.measured[task]):
            return None
        return itemise(answers, _parts(content))

    known = {task: [read(m, task) for m in front.known] for task in front.tasks}
    found = _differences(known)
    return judged(front.model_copy(update={"differences": found}))


def _differences(
    known: Mapping[str, Sequence[Itemised | None]],
) -> dict[str, Differences]:
    """Compare merges on each task where two or more have the same items."""
    compared = {task: compare_items(items) for task, items in known.items()}
    return {task: one for task, one in compared.items() if one is not None}


def _parts(content: Mapping[str, Any]) -> list[str]:
    """Return the part of a group that each record is of; empty for other files."""
    samples = content.get("samples")
    if not isinstance(samples, list) or not all(isinstance(s, dict) for s in samples):
        return []
    return [str(sample.get("task", "")) for sample in samples]


def itemise(answers: Answers, parts: Sequence[str] | None = None) -> Itemised | None:
    """Return the influence of each item on the value, to first order.

    None where items do not define a standard error: with fewer than two in a part, or
    an infinite value. Without ``parts`` there is one.
    """
    names = np.array([""] * len(answers.ids) if parts is None else parts)
    counts = np.unique(names, return_counts=True)[1]
    value = mean_of(answers)
    if len(names) != len(answers.ids) or not len(counts) or min(counts) < 2:
        return None
    if not math.isfinite(value):
        return None
    values, weights = np.array(answers.values), np.array(answers.weights)
    residuals = values.copy()
    for name in np.unique(names):
        part = names == name
        residuals[part] -= np.average(values[part], weights=weights[part])
    slope = value if answers.exponential else 1.0
    influences = slope * weights * residuals / weights.sum()
    if not np.isfinite(influences).all():
        return None
    items = tuple(zip(names.tolist(), answers.ids, strict=True))
    return Itemised(items, influences)


def compare_items(known: Sequence[Itemised | None]) -> Differences | None:
    """Compare the largest set of merges that were measured on the same items."""
    groups: dict[tuple[tuple[str, int], ...], dict[int, FloatArray]] = {}
    for index, one in enumerate(known):
        if one is not None:
            groups.setdefault(one.items, {})[index] = one.influences
    if not groups:
        return None
    items, same = max(groups.items(), key=lambda group: len(group[1]))
    if len(same) < 2:
        return None
    parts = np.unique([part for part, _ in items], return_inverse=True)[1]
    U = np.array([*same.values()])
    # Values are answers, many of them equal, or amounts.
    answers = bool(np.median([len(np.unique(row)) for row in U]) < len(items) / 2)
    stderr = stderrs_of_differences(U, parts)
    return Differences.of([*same], stderr, len(items), answers=answers)
